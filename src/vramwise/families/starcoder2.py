"""StarCoder 2: llama with LayerNorm, biases and a two-matrix MLP."""

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
    name="starcoder2",
    block=Block(plain_mlp=("c_fc", "c_proj"), drops_inside=True),
    layout=Layout(block=_block),
    types={
        "starcoder2": model_type(
            sizes=(49152, 12288, 24, 2, 4096),
            fixed=LAYER_NORM_MLP,
            switches=dict.fromkeys(ALL_BIASES, "use_bias"),
            use_bias=True,
            hidden_act="gelu_pytorch_tanh",
            tie_word_embeddings=True,
            window="all",
        )
    },
)
