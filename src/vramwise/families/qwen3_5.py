"""Qwen3.5, its mixture of experts, and Qwen3-Next: three layers with a gated delta net for one with gated attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vramwise.families.base import ATTENTION_BIAS, HEAD_NORM, QWEN_EXPERT_NAMES, Block, Mixture, model_type
from vramwise.families.config_fields import Fields
from vramwise.families.layout import Family, Layout
from vramwise.families.parts import Parameter, Parts, experts, key_size, linear, mlp, norm, norms, query_size, router
from vramwise.types import ModelSpec

_OWN = (
    "linear_conv_kernel_dim",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_num_key_heads",
    "linear_num_value_heads",
)


def _settles(fields: Fields, found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Every fourth layer has attention, where the file does not list them; its result is gated."""
    kinds = found["layer_types"]
    if fields.texts("layer_types") is None:
        every = fields.integer("full_attention_interval")
        kinds = tuple(
            "full_attention" if (layer + 1) % every == 0 else "linear_attention"
            for layer in range(found["num_hidden_layers"])
        )
    return {"layer_types": kinds, "sizes": (*found["sizes"], ("attention_gate", 1))}


def delta_net(model: ModelSpec) -> Parts:
    """A gated delta net: one projection for q, k, v and the gate in Qwen3-Next, several in Qwen3.5."""
    keys = model.size("linear_num_key_heads") * model.size("linear_key_head_dim")
    heads, width = model.size("linear_num_value_heads"), model.size("linear_value_head_dim")
    values, hidden, name = heads * width, model.hidden_size, "linear_attn"
    yield Parameter(f"{name}.dt_bias", (heads,), "other")
    yield Parameter(f"{name}.A_log", (heads,), "other")
    yield Parameter(f"{name}.conv1d.weight", (2 * keys + values, 1, model.size("linear_conv_kernel_dim")), "other")
    together = model.model_type == "qwen3_next"
    if together:
        yield from linear(f"{name}.in_proj_qkvz", hidden, 2 * keys + 2 * values, False)
        yield from linear(f"{name}.in_proj_ba", hidden, 2 * heads, False)
    yield Parameter(f"{name}.norm.weight", (width,), "norm")
    yield from linear(f"{name}.out_proj", values, hidden, False)
    if not together:
        yield from linear(f"{name}.in_proj_qkv", hidden, 2 * keys + values, False)
        yield from linear(f"{name}.in_proj_z", hidden, values, False)
        yield from linear(f"{name}.in_proj_b", hidden, heads, False)
        yield from linear(f"{name}.in_proj_a", hidden, heads, False)


def _attention(model: ModelSpec, block: Block) -> Parts:
    hidden, bias = model.hidden_size, model.qkv_bias
    yield from linear("self_attn.q_proj", hidden, 2 * query_size(model), bias)
    yield from linear("self_attn.k_proj", hidden, key_size(model), bias)
    yield from linear("self_attn.v_proj", hidden, key_size(model), bias)
    yield from linear("self_attn.o_proj", query_size(model), hidden, model.attention_out_bias)
    yield from norm("self_attn.q_norm", model, block, model.head_dim)
    yield from norm("self_attn.k_norm", model, block, model.head_dim)


def _mixture(model: ModelSpec) -> Parts:
    yield from router(model)
    yield from experts(model)
    yield from mlp(model, "mlp.shared_expert", model.shared_expert_intermediate_size)
    yield from linear("mlp.shared_expert_gate", model.hidden_size, 1, False)


def _layer(model: ModelSpec, block: Block, layer: int) -> Parts:
    yield from delta_net(model) if model.layer_types[layer] == "linear_attention" else _attention(model, block)
    yield from _mixture(model) if model.num_experts and layer not in model.dense_layers else mlp(model)
    yield from norms(model, block)


_COMMON: dict[str, Any] = {
    "fixed": HEAD_NORM,
    "switches": ATTENTION_BIAS,
    "own_sizes": _OWN,
    "settles": _settles,
    "head_dim": 256,
    "partial_rotary_factor": 0.25,
    "full_attention_interval": 4,
    "decoder_sparse_step": 1,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
}

_MIXTURE = Mixture(normalised=True, own_width=True, dense_layers="stepped")
_BLOCK = Block(
    norm="one plus weight",
    masks_by_kind=True,
    mixers={"full_attention": "gated", "linear_attention": "delta rule"},
    mixture=_MIXTURE,
)

FAMILY = Family(
    name="qwen3_5",
    block=_BLOCK,
    layout=Layout(by_layer=_layer),
    types={
        "qwen3_5_text": model_type(sizes=(248320, 12288, 16, 4, 32768), **_COMMON),
        "qwen3_5_moe_text": model_type(
            sizes=(248320, 512, 16, 2, 32768),
            **_COMMON,
            num_experts=256,
            num_experts_per_tok=8,
            moe_intermediate_size=512,
            shared_expert_intermediate_size=512,
        ),
        "qwen3_next": model_type(
            sizes=(151936, 5632, 16, 2, 32768),
            # PEFT redirects the names of experts here, and not in Qwen3.5
            block=replace(_BLOCK, mixture=replace(_MIXTURE, peft_names=QWEN_EXPERT_NAMES)),
            **_COMMON,
            num_experts=512,
            num_experts_per_tok=10,
            moe_intermediate_size=512,
            shared_expert_intermediate_size=512,
        ),
    },
    measured=False,
    coarse="the delta rule of its linear attention is summed up, not followed operation by operation",
)
