"""Phi 1 and 2: one LayerNorm feeds attention and a two-matrix MLP in parallel; a head with bias."""

from __future__ import annotations

from vramwise.families.base import ALL_BIASES, LAYER_NORM_MLP, Block, model_type
from vramwise.families.layout import Family, Layout
from vramwise.families.parts import Parts, attention, norms, two_matrices
from vramwise.types import ModelSpec


def _block(model: ModelSpec, block: Block, sparse: bool) -> Parts:
    yield from attention(model, block)
    yield from two_matrices(model, block)
    yield from norms(model, block)


FAMILY = Family(
    name="phi",
    block=Block(
        parallel="attention, mlp",
        attention=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.dense"),
        head_norms=("q_layernorm", "k_layernorm"),
        head_norms_run="after projections",
        rotation="inside attention",
        plain_mlp=("fc1", "fc2"),
        drops_embeddings=True,
    ),
    layout=Layout(block=_block, final_norm="model.final_layernorm"),
    types={
        "phi": model_type(
            sizes=(51200, 8192, 32, None, 2048),
            fixed={
                **LAYER_NORM_MLP,
                **ALL_BIASES,
                "lm_head_bias": True,
                "norms_per_block": 1,
                "parallel_residual": True,
            },
            hidden_act="gelu_new",
            partial_rotary_factor=0.5,
        )
    },
)
