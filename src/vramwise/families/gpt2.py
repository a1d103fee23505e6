"""GPT-2: learned positions, fused q, k and v, LayerNorms, transposed linears, dropout inside."""

from __future__ import annotations

from vramwise.families.base import ALL_BIASES, LAYER_NORM_MLP, Block, model_type
from vramwise.families.layout import Family, Layout
from vramwise.families.parts import Parts, conv1d, norms
from vramwise.types import ModelSpec


def _block(model: ModelSpec, block: Block, sparse: bool) -> Parts:
    hidden, inner = model.hidden_size, model.intermediate_size
    qkv, out = block.attention
    up, down = block.plain_mlp
    first, second = block.norms
    yield from norms(model, block, first)
    yield from conv1d(qkv, hidden, 3 * hidden)
    yield from conv1d(out, hidden, hidden)
    yield from norms(model, block, second)
    yield from conv1d(f"mlp.{up}", hidden, inner)
    yield from conv1d(f"mlp.{down}", inner, hidden)


FAMILY = Family(
    name="gpt2",
    block=Block(
        norms=("ln_1", "ln_2"),
        fused_attention="cut in thirds",
        attention=("attn.c_attn", "attn.c_proj"),
        plain_mlp=("c_fc", "c_proj"),
        linear="transposed",
        drops_inside=True,
    ),
    layout=Layout(
        block=_block,
        layers="transformer.h",
        embedding="transformer.wte",
        positions="transformer.wpe",
        final_norm="transformer.ln_f",
    ),
    types={
        "gpt2": model_type(
            sizes=(50257, 4 * 768, 12, None, 1024),
            fixed={**LAYER_NORM_MLP, **ALL_BIASES, "fused_qkv": True, "rotary_fraction": 0.0},
            kv_heads="heads",
            computes_head_dim=True,
            mlp_width="n_inner",
            tie_word_embeddings=True,
            hidden_act="gelu_new",
            attention_dropout=0.1,
            resid_pdrop=0.1,
            embd_pdrop=0.1,
        )
    },
)
