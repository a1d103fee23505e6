"""Apertus: llama with a two-matrix MLP and a learnable xIELU."""

from __future__ import annotations

from vramwise.families.base import ATTENTION_BIAS, HEAD_NORM, Block, model_type
from vramwise.families.layout import Family, Layout
from vramwise.families.parts import Parameter, Parts, attention, mlp, norms
from vramwise.types import ModelSpec


def _block(model: ModelSpec, block: Block, sparse: bool) -> Parts:
    yield from attention(model, block)
    yield from mlp(model)
    yield Parameter("mlp.act_fn.alpha_p", (1,), "other")
    yield Parameter("mlp.act_fn.alpha_n", (1,), "other")
    yield from norms(model, block)


FAMILY = Family(
    name="apertus",
    block=Block(norms=("attention_layernorm", "feedforward_layernorm")),
    layout=Layout(block=_block),
    types={
        "apertus": model_type(
            sizes=(131072, 14336, 32, None, 65536),
            fixed={"gated_mlp": False, **HEAD_NORM},
            switches=ATTENTION_BIAS,
            hidden_act="xielu",
        )
    },
)
