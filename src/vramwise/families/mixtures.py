"""Llama blocks whose MLP is a mixture of experts in sparse layers, for each order of its parts."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.families.base import Block
from vramwise.families.layout import BlockParts
from vramwise.families.parts import Parts, attention, experts, linear, mlp, norms, router
from vramwise.types import ModelSpec


def shared_experts(model: ModelSpec) -> Parts:
    """Experts, their router, and the shared experts."""
    yield from experts(model)
    yield from router(model)
    yield from mlp(model, "mlp.shared_experts", model.shared_expert_intermediate_size)


def gated_expert(model: ModelSpec) -> Parts:
    """The router, its experts, and a shared expert with its own gate."""
    yield from router(model)
    yield from experts(model)
    yield from mlp(model, "mlp.shared_expert", model.shared_expert_intermediate_size)
    yield from linear("mlp.shared_expert_gate", model.hidden_size, 1, False)


def _sparse_llama(*mixture: Callable[[ModelSpec], Parts]) -> BlockParts:
    def block_parts(model: ModelSpec, block: Block, sparse: bool) -> Parts:
        yield from attention(model, block)
        for part in mixture if sparse else (mlp,):
            yield from part(model)
        yield from norms(model, block)

    return block_parts


router_first = _sparse_llama(router, experts)
router_last = _sparse_llama(experts, router)
beside_shared_experts = _sparse_llama(shared_experts)
beside_gated_expert = _sparse_llama(gated_expert)
