"""Kimi Linear: delta attention in three of four layers, latent attention without positions in the fourth, experts."""

from __future__ import annotations

from vramwise.families.base import Block, Found
from vramwise.families.config_fields import Fields
from vramwise.families.deepseek import dense_layers, latent
from vramwise.families.mixtures import shared_experts
from vramwise.families.parts import Parameter, Parts, linear, mlp, norms
from vramwise.types import ModelSpec


def settles(fields: Fields, found: Found) -> Found:
    """Set the kinds of layers and the sizes of delta attention.

    Published files have these in a separate mapping, with layers counted from 1.
    """
    inner = Fields(fields.mapping("linear_attn_config"), {}, f"{fields.source} (linear_attn_config)")
    layers = range(found["num_hidden_layers"])
    kinds = fields.texts("layer_types")
    if kinds is None:
        full = {layer - 1 for layer in inner.integers("full_attn_layers")} or {i for i in layers if i and i % 4 == 0}
        kinds = tuple("full_attention" if layer in full else "linear_attention" for layer in layers)
    heads = inner.optional_integer("num_heads") or fields.integer("linear_num_heads")
    width = inner.optional_integer("head_dim") or fields.integer("linear_head_dim")
    taps = inner.optional_integer("short_conv_kernel_size") or fields.integer("linear_conv_kernel_dim")
    delta = {
        "linear_num_key_heads": heads,
        "linear_num_value_heads": heads,
        "linear_key_head_dim": width,
        "linear_value_head_dim": width,
        "linear_conv_kernel_dim": taps,
    }
    shared = fields.count("num_shared_experts", "n_shared_experts") * found["moe_intermediate_size"]
    return {
        "layer_types": kinds,
        "sizes": (*found["sizes"], *delta.items()),
        "head_dim": dict(found["sizes"])["qk_rope_head_dim"],
        "rotary_fraction": 0.0,
        "num_experts_per_tok": fields.integer("num_experts_per_token", "num_experts_per_tok"),
        "shared_expert_intermediate_size": shared,
        **dense_layers(fields, found),
    }


def _delta(model: ModelSpec) -> Parts:
    heads, width, hidden = model.size("linear_num_key_heads"), model.size("linear_key_head_dim"), model.hidden_size
    size, name = heads * width, "self_attn"
    for letter in "qkv":
        yield from linear(f"{name}.{letter}_proj", hidden, size, False)
    yield Parameter(f"{name}.conv1d.weight", (3 * size, 1, model.size("linear_conv_kernel_dim")), "other")
    yield Parameter(f"{name}.forget_gate.dt_bias", (size,), "other")
    yield Parameter(f"{name}.forget_gate.A_log", (1, 1, heads, 1), "other")
    yield from linear(f"{name}.forget_gate.f_a_proj", hidden, width, False)
    yield from linear(f"{name}.forget_gate.f_b_proj", width, size, False)
    yield from linear(f"{name}.b_proj", hidden, heads, False)
    yield from linear(f"{name}.g_a_proj", hidden, width, False)
    yield from linear(f"{name}.g_b_proj", width, size, False)
    yield Parameter(f"{name}.o_norm.weight", (width,), "norm")
    yield from linear(f"{name}.o_proj", size, hidden, False)


def layer_parts(model: ModelSpec, block: Block, layer: int) -> Parts:
    """The parameters of one layer."""
    yield from latent(model, block) if model.layer_types[layer] == "full_attention" else _delta(model)
    yield from shared_experts(model) if layer not in model.dense_layers else mlp(model)
    yield from norms(model, block)
