"""Jamba: Mamba layers with one of attention in eight; experts in every other layer; no rotary positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.families.base import Block, Mixture, model_type
from vramwise.families.config_fields import Fields
from vramwise.families.layout import Family, Layout
from vramwise.families.parts import Parameter, Parts, linear, mlp, norms, projections
from vramwise.types import ModelSpec


def _settles(fields: Fields, found: Mapping[str, Any]) -> Mapping[str, Any]:
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


def _layer(model: ModelSpec, block: Block, layer: int) -> Parts:
    yield from projections(model, block) if model.layer_types[layer] == "full_attention" else _mamba(model)
    if model.num_experts > 1 and layer not in model.dense_layers:
        count, hidden, size = model.num_experts, model.hidden_size, model.moe_intermediate_size
        yield Parameter("feed_forward.router.weight", (count, hidden), "router")
        yield Parameter("feed_forward.experts.gate_up_proj", (count, 2 * size, hidden), "experts")
        yield Parameter("feed_forward.experts.down_proj", (count, hidden, size), "experts")
    else:
        yield from mlp(model, "feed_forward")
    yield from norms(model, block)


FAMILY = Family(
    name="jamba",
    block=Block(
        norms=("input_layernorm", "pre_ff_layernorm"),
        feed_forward="feed_forward",
        mixers={"linear_attention": "state space"},
        mixture=Mixture(router="router"),
    ),
    layout=Layout(by_layer=_layer, final_norm="model.final_layernorm"),
    types={
        "jamba": model_type(
            sizes=(65536, 14336, 32, 8, 262144),
            settles=_settles,
            num_experts=16,
            num_experts_per_tok=2,
            expert_layer_period=2,
            expert_layer_offset=1,
            attn_layer_period=8,
            attn_layer_offset=4,
            mamba_d_state=16,
            mamba_d_conv=4,
            mamba_expand=2,
        )
    },
    measured=False,
    coarse="the scan of its state-space layers is summed up, not followed operation by operation",
)
