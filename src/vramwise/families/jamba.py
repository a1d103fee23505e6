"""Jamba: Mamba layers with one of attention in eight; experts in every other layer; no rotary positions."""

from __future__ import annotations

from vramwise.families.base import Block, Found
from vramwise.families.config_fields import Fields
from vramwise.families.parts import Parameter, Parts, experts, linear, mlp, norms, projections, router
from vramwise.types import ModelSpec


def settles(fields: Fields, found: Found) -> Found:
    """What follows from several fields."""
    layers, hidden = range(found["num_hidden_layers"]), found["hidden_size"]
    attends = fields.integer("attn_layer_period"), fields.count("attn_layer_offset")
    sparse = fields.integer("expert_layer_period"), fields.count("expert_layer_offset")
    rank = fields.get("mamba_dt_rank")
    return {
        "layer_types": tuple("full_attention" if i % attends[0] == attends[1] else "linear_attention" for i in layers),
        "dense_layers": tuple(i for i in layers if i % sparse[0] != sparse[1]),
        "rotary_fraction": 0.0,
        "sizes": (
            ("state_width", fields.integer("mamba_expand") * hidden),
            ("state_size", fields.integer("mamba_d_state")),
            ("state_taps", fields.integer("mamba_d_conv")),
            ("state_rank", -(-hidden // 16) if rank in (None, "auto") else fields.integer("mamba_dt_rank")),
        ),
    }


def _mamba(model: ModelSpec) -> Parts:
    width, state, rank = (model.size(f"state_{name}") for name in ("width", "size", "rank"))
    yield Parameter("mamba.A_log", (width, state), "other")
    yield Parameter("mamba.D", (width,), "other")
    yield Parameter("mamba.conv1d.weight", (width, 1, model.size("state_taps")), "other")
    yield Parameter("mamba.conv1d.bias", (width,), "other")
    yield from linear("mamba.in_proj", model.hidden_size, 2 * width, False)
    yield from linear("mamba.x_proj", width, rank + 2 * state, False)
    yield from linear("mamba.dt_proj", rank, width, True)
    yield from linear("mamba.out_proj", width, model.hidden_size, False)
    for name, size in (("dt", rank), ("b", state), ("c", state)):
        yield Parameter(f"mamba.{name}_layernorm.weight", (size,), "norm")


def layer_parts(model: ModelSpec, block: Block, layer: int) -> Parts:
    """The parameters of one layer."""
    yield from projections(model, block) if model.layer_types[layer] == "full_attention" else _mamba(model)
    if model.num_experts > 1 and layer not in model.dense_layers:
        yield from router(model, "feed_forward.router")
        yield from experts(model, "feed_forward.experts")
    else:
        yield from mlp(model, "feed_forward")
    yield from norms(model, block)
