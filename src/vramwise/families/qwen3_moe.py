"""Qwen 3 MoE: Qwen 3 whose MLP is a mixture of experts."""

from __future__ import annotations

from vramwise.families.base import ATTENTION_BIAS, HEAD_NORM, QWEN_EXPERT_NAMES, Block, Mixture, model_type
from vramwise.families.layout import Family, Layout, sparse_llama
from vramwise.families.parts import Parts, experts, router
from vramwise.types import ModelSpec


def _mixture(model: ModelSpec) -> Parts:
    yield from experts(model)
    yield from router(model)


_QWEN3_MOE = model_type(
    sizes=(151936, 6144, 32, 4, 32768),
    fixed=HEAD_NORM,
    switches=ATTENTION_BIAS,
    sliding_window=4096,
    window="enabled",
    num_local_experts=128,
    num_experts_per_tok=8,
    moe_intermediate_size=768,
    decoder_sparse_step=1,
)

FAMILY = Family(
    name="qwen3_moe",
    block=Block(mixture=Mixture(normalised=True, own_width=True, dense_layers="stepped", peft_names=QWEN_EXPERT_NAMES)),
    layout=Layout(block=sparse_llama(_mixture)),
    types={"qwen3_moe": _QWEN3_MOE, "qwen3_vl_moe_text": _QWEN3_MOE},
)
