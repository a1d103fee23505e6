"""Trinity (AFMoE): gated attention with norms before and after, windows in three of four layers, many small experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.families.base import ATTENTION_BIAS, HEAD_NORM, QWEN_EXPERT_NAMES, Block, Mixture, model_type
from vramwise.families.config_fields import Fields
from vramwise.families.layout import Family, Layout
from vramwise.families.parts import Parameter, Parts, attention, experts, linear, mlp, norms, query_size, router
from vramwise.types import ModelSpec

_NORMS = ("input_layernorm", "post_attention_layernorm", "pre_mlp_layernorm", "post_mlp_layernorm")


def _settles(fields: Fields, found: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first layers are dense; only layers with a window are turned by positions."""
    shared = fields.count("num_shared_experts") * fields.integer("moe_intermediate_size")
    kinds = found["layer_types"]
    return {
        "shared_expert_intermediate_size": shared,
        "dense_layers": tuple(range(fields.count("num_dense_layers"))),
        "nope_layers": tuple(layer for layer, kind in enumerate(kinds) if kind != "sliding_attention"),
    }


def _layer(model: ModelSpec, block: Block, layer: int) -> Parts:
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


FAMILY = Family(
    name="afmoe",
    block=Block(
        order="sandwich",
        norms=_NORMS,
        masks_by_kind=True,
        mixers={"full_attention": "gated", "sliding_attention": "gated"},
        mixture=Mixture(router="router.gate", normalised=True, own_width=True, peft_names=QWEN_EXPERT_NAMES),
    ),
    layout=Layout(by_layer=_layer),
    types={
        "afmoe": model_type(
            sizes=(200192, 6144, 16, None, 16384),
            fixed={"norms_per_block": 4, **HEAD_NORM},
            switches=ATTENTION_BIAS,
            settles=_settles,
            head_dim=128,
            sliding_window=1024,
            global_attn_every_n_layers=4,
            sliding_window_pattern=4,
            window="pattern",
            num_experts=64,
            num_experts_per_tok=6,
            num_shared_experts=2,
            num_dense_layers=1,
            moe_intermediate_size=1408,
        )
    },
    measured=False,
)
