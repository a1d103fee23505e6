"""Trinity (AFMoE): gated attention with norms before and after, windows in three of four layers, many small experts."""

from __future__ import annotations

from vramwise.families.base import Block, Found
from vramwise.families.config_fields import Fields
from vramwise.families.parts import Parameter, Parts, attention, experts, linear, mlp, norms, query_size, router
from vramwise.families.positions import without_window
from vramwise.types import ModelSpec


def settles(fields: Fields, found: Found) -> Found:
    """Set the shared experts' width and the dense first layers. Only layers with a window use rotary positions."""
    shared = fields.count("num_shared_experts") * fields.integer("moe_intermediate_size")
    return {
        "shared_expert_intermediate_size": shared,
        "dense_layers": tuple(range(fields.count("num_dense_layers"))),
        "nope_layers": without_window(found),
    }


def layer_parts(model: ModelSpec, block: Block, layer: int) -> Parts:
    """The parameters of one layer."""
    yield from attention(model, block)
    yield from linear("self_attn.gate_proj", model.hidden_size, query_size(model), False)
    yield from norms(model, block)
    if layer in model.dense_layers:
        yield from mlp(model)
        return
    yield Parameter("mlp.expert_bias", (model.num_experts,), "other")
    yield from router(model, "mlp.router.gate")
    if model.shared_expert_intermediate_size:
        yield from mlp(model, "mlp.shared_experts", model.shared_expert_intermediate_size)
    yield from experts(model)
