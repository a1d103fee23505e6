"""GPT-NeoX and Pythia: fused q, k and v, LayerNorms, a two-matrix MLP; two norms feed both in parallel."""

from __future__ import annotations

from vramwise.families.base import ATTENTION_BIAS, LAYER_NORM_MLP, Block, model_type
from vramwise.families.layout import Family, Layout
from vramwise.families.parts import Parts, linear, norms, two_matrices
from vramwise.types import ModelSpec


def _block(model: ModelSpec, block: Block, sparse: bool) -> Parts:
    qkv, out = block.attention
    yield from norms(model, block)
    yield from linear(qkv, model.hidden_size, 3 * model.hidden_size, model.qkv_bias)
    yield from linear(out, model.hidden_size, model.hidden_size, model.attention_out_bias)
    yield from two_matrices(model, block)


FAMILY = Family(
    name="gpt_neox",
    block=Block(
        parallel="two norms",
        fused_attention="cut head by head",
        attention=("attention.query_key_value", "attention.dense"),
        rotation="parts, then joined",
        plain_mlp=("dense_h_to_4h", "dense_4h_to_h"),
        embedding_dropout="hidden",
    ),
    layout=Layout(
        block=_block,
        layers="gpt_neox.layers",
        embedding="gpt_neox.embed_in",
        final_norm="gpt_neox.final_layer_norm",
    ),
    types={
        "gpt_neox": model_type(
            sizes=(50432, 24576, 64, None, 2048),
            fixed={**LAYER_NORM_MLP, "fused_qkv": True, "mlp_bias": True},
            switches={**ATTENTION_BIAS, "parallel_residual": "use_parallel_residual"},
            kv_heads="heads",
            computes_head_dim=True,
            attention_bias=True,
            use_parallel_residual=True,
            hidden_act="gelu",
            partial_rotary_factor=0.25,
        )
    },
)
