"""MPT: LayerNorms without biases, one projection for q, k and v, an MLP without a gate, ALiBi in place of positions."""

from __future__ import annotations

from vramwise.families.base import Block, model_type
from vramwise.families.layout import Family, Layout
from vramwise.families.parts import Parts, linear, norm
from vramwise.types import ModelSpec


def _block(model: ModelSpec, block: Block, sparse: bool) -> Parts:
    hidden, inner = model.hidden_size, model.intermediate_size
    yield from norm("norm_1", model, block)
    yield from linear("attn.Wqkv", hidden, 3 * hidden, False)
    yield from linear("attn.out_proj", hidden, hidden, False)
    yield from norm("norm_2", model, block)
    yield from linear("ffn.up_proj", hidden, inner, False)
    yield from linear("ffn.down_proj", inner, hidden, False)


FAMILY = Family(
    name="mpt",
    block=Block(
        norms=("norm_1", "norm_2"),
        norm_biases=False,
        fused_attention="cut in thirds",
        attention=("attn.Wqkv", "attn.out_proj"),
        feed_forward="ffn",
    ),
    layout=Layout(
        block=_block, layers="transformer.blocks", embedding="transformer.wte", final_norm="transformer.norm_f"
    ),
    types={
        "mpt": model_type(
            sizes=(50368, 8192, 16, None, 2048),
            fixed={"norm": "layer", "gated_mlp": False, "fused_qkv": True, "rotary_fraction": 0.0},
            kv_heads="heads",
            mlp_width="ffn_width",
            computes_head_dim=True,
            hidden_act="gelu",
            tie_word_embeddings=True,
        )
    },
    measured=False,
    coarse="its attention is always written out there; here it runs by the implementation that the config names",
)
