"""Mixtral: mistral whose MLP is a mixture of experts."""

from __future__ import annotations

from vramwise.families.base import Block, Mixture, model_type
from vramwise.families.layout import Family, Layout, sparse_llama
from vramwise.families.parts import Parts, experts, router
from vramwise.types import ModelSpec


def _mixture(model: ModelSpec) -> Parts:
    yield from router(model)
    yield from experts(model)


_PEFT_NAMES = {"gate": "gate.weight", "w1": "gate_up_proj", "w3": "gate_up_proj", "w2": "down_proj"}

FAMILY = Family(
    name="mixtral",
    block=Block(mixture=Mixture(normalised=True, cast_back=False, peft_names=_PEFT_NAMES)),
    layout=Layout(block=sparse_llama(_mixture)),
    types={
        "mixtral": model_type(
            sizes=(32000, 14336, 32, 8, 131072), window="all", num_local_experts=8, num_experts_per_tok=2
        )
    },
)
