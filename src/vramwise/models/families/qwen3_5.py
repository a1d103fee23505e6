"""Qwen3.5, its mixture of experts, and Qwen3-Next: three layers with a gated delta net for one with gated attention."""

from __future__ import annotations

from vramwise.models.families.base import Block, Found
from vramwise.models.families.config_fields import Fields
from vramwise.models.families.mixtures import gated_expert
from vramwise.models.families.parts import Parameter, Parts, key_size, linear, mlp, norm, norms, query_size
from vramwise.types import ModelSpec


def settles(fields: Fields, found: Found) -> Found:
    """Set the kinds of layers and mark attention as gated.

    If the file does not list the layers, every `full_attention_interval`-th layer has attention.
    """
    kinds = found["layer_types"]
    if fields.texts("layer_types") is None:
        every = fields.integer("full_attention_interval")
        kinds = tuple(
            "full_attention" if (layer + 1) % every == 0 else "linear_attention"
            for layer in range(found["num_hidden_layers"])
        )
    return {"layer_types": kinds, "sizes": (*found["sizes"], ("attention_gate", 1))}


def delta_net(model: ModelSpec) -> Parts:
    """Return a gated delta net: one projection for q, k, v and the gate in Qwen3-Next, several in Qwen3.5."""
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


def layer_parts(model: ModelSpec, block: Block, layer: int) -> Parts:
    """Return the parameters of one layer."""
    yield from delta_net(model) if model.layer_types[layer] == "linear_attention" else _attention(model, block)
    yield from gated_expert(model) if model.num_experts and layer not in model.dense_layers else mlp(model)
    yield from norms(model, block)
