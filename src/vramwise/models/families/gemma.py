"""Gemma 4 and Gemma 3n.

Gemma 4: layers of full attention have wider heads; experts beside the MLP, or an input of its own in every layer.
Gemma 3n: several streams of hidden states (AltUp), low-rank residuals (LAuReL), an input for every layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.models.families.base import Block, Found
from vramwise.models.families.config_fields import Fields
from vramwise.models.families.parts import (
    Parameter,
    Parts,
    experts,
    key_size,
    linear,
    mlp,
    norm,
    norms,
    query_size,
    router,
)
from vramwise.types import ModelSpec


def gemma4_settles(fields: Fields, found: Found) -> Found:
    """Set the kinds of layers and the sizes that are specific to Gemma 4. The last layer always has full attention.

    Layers of full attention have their own head width, and may have their own number of key-value heads.
    """
    kinds = (*found["layer_types"][:-1], "full_attention")
    equal = fields.flag("attention_k_eq_v")
    # saved files set these values for each layer
    saved = next((value for value in fields.mapping("per_layer_config").values() if isinstance(value, Mapping)), {})
    layers = Fields(saved, {}, f"{fields.source} (per_layer_config)")
    own = fields.optional_integer("num_global_key_value_heads") if equal else None
    own = own or layers.optional_integer("num_key_value_heads")
    sizes = {
        "global_head_dim": layers.optional_integer("head_dim") or fields.integer("global_head_dim"),
        "global_kv_heads": own or found["num_key_value_heads"],
        "attention_k_eq_v": int(equal),
        "kv_shared_layers": fields.count("num_kv_shared_layers"),
        "double_wide": int(fields.flag("use_double_wide_mlp")),
        "value_norm": 1,
        "layer_input": fields.count("hidden_size_per_layer_input"),
        "layer_vocabulary": fields.count("vocab_size_per_layer_input"),
    }
    settled: dict[str, Any] = {"layer_types": kinds, "sizes": tuple(sizes.items()), "rotary_fraction": 1.0}
    if not fields.flag("enable_moe_block") and found.get("num_experts"):
        settled |= {"num_experts": 0, "num_experts_per_tok": 0, "moe_intermediate_size": 0}
    return settled


def _shares_keys(model: ModelSpec, layer: int) -> bool:
    """Return whether a layer takes keys and values from an earlier one, as the last layers do."""
    first = model.num_hidden_layers - model.size("kv_shared_layers")
    return layer >= first


def _gemma4_attention(model: ModelSpec, block: Block, layer: int) -> Parts:
    whole = model.layer_types[layer] == "full_attention"
    width = model.size("global_head_dim") if whole else model.head_dim
    keys = width * (model.size("global_kv_heads") if whole else model.num_key_value_heads)
    queries, hidden, bias = width * model.num_attention_heads, model.hidden_size, model.qkv_bias
    yield from linear("self_attn.q_proj", hidden, queries, bias)
    yield from norm("self_attn.q_norm", model, block, width)
    if not _shares_keys(model, layer):
        yield from norm("self_attn.k_norm", model, block, width)
        yield from linear("self_attn.k_proj", hidden, keys, bias)
        if not (whole and model.size("attention_k_eq_v")):
            yield from linear("self_attn.v_proj", hidden, keys, bias)
    yield from linear("self_attn.o_proj", queries, hidden, bias)


def _layer_input(model: ModelSpec, block: Block) -> Parts:
    """Yield the parameters of a layer's per-layer input."""
    yield from linear("per_layer_input_gate", model.hidden_size, model.size("layer_input"), False)
    yield from linear("per_layer_projection", model.size("layer_input"), model.hidden_size, False)
    yield from norm("post_per_layer_input_norm", model, block)


def _layer_tables(model: ModelSpec, block: Block, start: str) -> Parts:
    """Yield the table of the per-layer inputs, their projection and its norm."""
    width = model.size("layer_input") * model.num_hidden_layers
    yield Parameter(f"{start}.embed_tokens_per_layer.weight", (model.size("layer_vocabulary"), width), "embedding")
    yield from linear(f"{start}.per_layer_model_projection", model.hidden_size, width, False)
    yield from norm(f"{start}.per_layer_projection_norm", model, block, model.size("layer_input"))


def _experts(model: ModelSpec, block: Block) -> Parts:
    yield Parameter("router.scale", (model.hidden_size,), "other")
    yield Parameter("router.per_expert_scale", (model.num_experts,), "other")
    yield from router(model, "router.proj")
    yield from experts(model, "experts")
    names = ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2")
    yield from norms(model, block, *names)


def gemma4_layer(model: ModelSpec, block: Block, layer: int) -> Parts:
    """Return the parameters of one layer."""
    yield from _gemma4_attention(model, block, layer)
    wide = model.size("double_wide") and _shares_keys(model, layer)
    yield from mlp(model, size=model.intermediate_size * (2 if wide else 1))
    yield from norms(model, block)
    if model.size("layer_input"):
        yield from _layer_input(model, block)
    if model.num_experts:
        yield from _experts(model, block)


def gemma4_after(model: ModelSpec, block: Block, start: str) -> Parts:
    """Yield the parameters after the last norm."""
    if model.size("layer_input"):
        yield from _layer_tables(model, block, start)


_SPARSE = 10  # sparse layers if the config does not list them and the model has more layers than this


def gemma3n_settles(fields: Fields, found: Found) -> Found:
    """Read the sizes that are specific to Gemma 3n."""
    sizes = {
        "sparse_layers": _sparse_layers(fields.get("activation_sparsity_pattern"), found["num_hidden_layers"]),
        "streams": fields.integer("altup_num_inputs"),
        "laurel_rank": fields.integer("laurel_rank"),
        "kv_shared_layers": fields.count("num_kv_shared_layers"),
        "value_norm": 1,
        "layer_input": fields.integer("hidden_size_per_layer_input"),
        "layer_vocabulary": fields.integer("vocab_size_per_layer_input"),
    }
    return {"sizes": tuple(sizes.items())}


def _sparse_layers(pattern: object, layers: int) -> int:
    """Return the number of layers that keep only the largest activations. These are the first layers."""
    if not isinstance(pattern, list):
        return _SPARSE if layers > _SPARSE else 0
    return sum(isinstance(rate, float) and rate > 0 for rate in pattern)


def _gemma3n_attention(model: ModelSpec, block: Block, layer: int) -> Parts:
    hidden, bias = model.hidden_size, model.qkv_bias
    yield from linear("self_attn.q_proj", hidden, query_size(model), bias)
    yield from norm("self_attn.q_norm", model, block, model.head_dim)
    if not _shares_keys(model, layer):
        yield from linear("self_attn.k_proj", hidden, key_size(model), bias)
        yield from linear("self_attn.v_proj", hidden, key_size(model), bias)
        yield from norm("self_attn.k_norm", model, block, model.head_dim)
    yield from linear("self_attn.o_proj", query_size(model), hidden, bias)


def gemma3n_layer(model: ModelSpec, block: Block, layer: int) -> Parts:
    """Return the parameters of one layer."""
    hidden, streams, rank = model.hidden_size, model.size("streams"), model.size("laurel_rank")
    yield from _gemma3n_attention(model, block, layer)
    yield from mlp(model)
    yield from norms(model, block)
    yield Parameter("altup.correct_output_scale", (hidden,), "other")
    yield from linear("altup.correction_coefs", streams, streams, False)
    yield from linear("altup.prediction_coefs", streams, streams * streams, False)
    yield from linear("altup.modality_router", hidden, streams, False)
    yield from norm("altup.router_norm", model, block)
    yield from linear("laurel.linear_left", hidden, rank, False)
    yield from linear("laurel.linear_right", rank, hidden, False)
    yield from norm("laurel.post_laurel_norm", model, block)
    yield from _layer_input(model, block)


def gemma3n_after(model: ModelSpec, block: Block, start: str) -> Parts:
    """Yield the parameters after the last norm."""
    yield from _layer_tables(model, block, start)
    for name in ("altup_projections", "altup_unembed_projections"):
        for stream in range(model.size("streams") - 1):
            yield from linear(f"{start}.{name}.{stream}", model.hidden_size, model.hidden_size, False)
