"""Gemma 3n: several streams of hidden states (AltUp), low-rank residuals (LAuReL), an input for every layer."""

from __future__ import annotations

from vramwise.families.base import Block, Found
from vramwise.families.config_fields import Fields
from vramwise.families.gemma4 import layer_input, layer_tables, shares_keys
from vramwise.families.parts import Parameter, Parts, key_size, linear, mlp, norm, norms, query_size
from vramwise.types import ModelSpec

_SPARSE = 10  # sparse layers if the config does not list them and the model has more layers than this


def settles(fields: Fields, found: Found) -> Found:
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


def _attention(model: ModelSpec, block: Block, layer: int) -> Parts:
    hidden, bias = model.hidden_size, model.qkv_bias
    yield from linear("self_attn.q_proj", hidden, query_size(model), bias)
    yield from norm("self_attn.q_norm", model, block, model.head_dim)
    if not shares_keys(model, layer):
        yield from linear("self_attn.k_proj", hidden, key_size(model), bias)
        yield from linear("self_attn.v_proj", hidden, key_size(model), bias)
        yield from norm("self_attn.k_norm", model, block, model.head_dim)
    yield from linear("self_attn.o_proj", query_size(model), hidden, bias)


def layer_parts(model: ModelSpec, block: Block, layer: int) -> Parts:
    """The parameters of one layer."""
    hidden, streams, rank = model.hidden_size, model.size("streams"), model.size("laurel_rank")
    yield from _attention(model, block, layer)
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
    yield from layer_input(model, block)


def after_parts(model: ModelSpec, block: Block, start: str) -> Parts:
    """Yield the parameters after the last norm."""
    yield from layer_tables(model, block, start)
    for name in ("altup_projections", "altup_unembed_projections"):
        for stream in range(model.size("streams") - 1):
            yield from linear(f"{start}.{name}.{stream}", model.hidden_size, model.hidden_size, False)
