"""GLM 4.5 and later: a mixture of experts beside shared experts, after a few dense layers."""

from __future__ import annotations

from vramwise.families.base import QKV_BIAS, QWEN_EXPERT_NAMES, Block, Mixture, model_type
from vramwise.families.layout import Family, Layout, sparse_llama
from vramwise.families.parts import Parts, experts, mlp, router
from vramwise.types import ModelSpec


def _mixture(model: ModelSpec) -> Parts:
    yield from experts(model)
    yield from router(model)
    yield from mlp(model, "mlp.shared_experts", model.shared_expert_intermediate_size)


FAMILY = Family(
    name="glm4_moe",
    block=Block(
        mixture=Mixture(
            normalised=True, wide_router=True, own_width=True, dense_layers="first", peft_names=QWEN_EXPERT_NAMES
        )
    ),
    layout=Layout(block=sparse_llama(_mixture)),
    types={
        "glm4_moe": model_type(
            sizes=(151552, 10944, 96, 8, 131072),
            switches=QKV_BIAS,
            partial_rotary_factor=0.5,
            num_local_experts=128,
            num_experts_per_tok=8,
            moe_intermediate_size=1408,
            n_shared_experts=1,
            first_k_dense_replace=1,
        )
    },
)
