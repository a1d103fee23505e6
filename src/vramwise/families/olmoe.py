"""OLMoE: llama whose MLP is a mixture of experts, with q and k normed over their full width."""

from __future__ import annotations

from vramwise.families.base import ATTENTION_BIAS, FULL_NORM, QWEN_EXPERT_NAMES, Block, Mixture, model_type
from vramwise.families.layout import Family, Layout, sparse_llama
from vramwise.families.parts import Parts, experts, router
from vramwise.types import ModelSpec


def _mixture(model: ModelSpec) -> Parts:
    yield from router(model)
    yield from experts(model)


FAMILY = Family(
    name="olmoe",
    block=Block(mixture=Mixture(peft_names=QWEN_EXPERT_NAMES)),
    layout=Layout(block=sparse_llama(_mixture)),
    types={
        "olmoe": model_type(
            sizes=(50304, 2048, 16, None, 4096),
            fixed=FULL_NORM,
            switches=ATTENTION_BIAS,
            num_local_experts=64,
            num_experts_per_tok=8,
        )
    },
)
