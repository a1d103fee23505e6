"""Qwen 1.5 and 2 MoE: a mixture of experts beside a shared expert that has a gate of its own."""

from __future__ import annotations

from vramwise.families.base import Block, Mixture, model_type
from vramwise.families.layout import Family, Layout, sparse_llama
from vramwise.families.parts import Parts, experts, linear, mlp, router
from vramwise.types import ModelSpec


def _mixture(model: ModelSpec) -> Parts:
    yield from router(model)
    yield from experts(model)
    yield from mlp(model, "mlp.shared_expert", model.shared_expert_intermediate_size)
    yield from linear("mlp.shared_expert_gate", model.hidden_size, 1, False)


FAMILY = Family(
    name="qwen2_moe",
    block=Block(masks_by_kind=True, mixture=Mixture(own_width=True, dense_layers="stepped")),
    layout=Layout(block=sparse_llama(_mixture)),
    types={
        "qwen2_moe": model_type(
            sizes=(151936, 5632, 16, 16, 32768),
            switches={"qkv_bias": "qkv_bias"},
            qkv_bias=True,
            sliding_window=4096,
            max_window_layers=28,
            window="alternate",
            num_local_experts=60,
            num_experts_per_tok=4,
            moe_intermediate_size=1408,
            shared_expert_intermediate_size=5632,
            decoder_sparse_step=1,
        )
    },
)
