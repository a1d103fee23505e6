"""LFM2 and its mixture of experts: short convolutions with some layers of attention between them."""

from __future__ import annotations

from typing import Any

from vramwise.models.families.base import Block, Found
from vramwise.models.families.config_fields import Fields
from vramwise.models.families.parts import Parameter, Parts, attention, experts, linear, norms, router
from vramwise.types import ModelSpec


def settles(fields: Fields, found: Found) -> Found:
    """Set the kinds of layers and the MLP width, which is adjusted unless `block_auto_adjust_ff_dim` is off."""
    layers = found["num_hidden_layers"]
    settled: dict[str, Any] = {"sizes": (*found["sizes"], ("conv_bias", int(fields.flag("conv_bias"))))}
    if fields.texts("layer_types") is None:
        attends = fields.integers("full_attn_idxs") or tuple(range(layers))
        settled["layer_types"] = tuple("full_attention" if i in attends else "conv" for i in range(layers))
    if not found.get("num_experts"):
        width = fields.optional_integer("block_ff_dim") or found["intermediate_size"]
        settled["intermediate_size"] = _adjusted(fields, width)
    else:
        settled["dense_layers"] = tuple(range(fields.count("num_dense_layers")))
    if fields.get("tie_embedding") is not None:
        settled["tie_word_embeddings"] = fields.flag("tie_embedding")
    return settled


def _adjusted(fields: Fields, width: int) -> int:
    if not fields.flag("block_auto_adjust_ff_dim"):
        return width
    factor = fields.optional_number("block_ffn_dim_multiplier")
    width, multiple = int(2 * width / 3), fields.integer("block_multiple_of")
    width = width if factor is None else int(factor * width)
    return -(-width // multiple) * multiple


def layer_parts(model: ModelSpec, block: Block, layer: int) -> Parts:
    """Return the parameters of one layer."""
    hidden, bias = model.hidden_size, model.size("conv_bias") > 0
    if model.layer_types[layer] == "full_attention":
        yield from attention(model, block)
    else:
        yield Parameter("conv.conv.weight", (hidden, 1, model.size("conv_L_cache")), "other")
        if bias:
            yield Parameter("conv.conv.bias", (hidden,), "other")
        yield from linear("conv.in_proj", hidden, 3 * hidden, bias)
        yield from linear("conv.out_proj", hidden, hidden, bias)
    if model.num_experts and layer not in model.dense_layers:
        yield from experts(model, "feed_forward.experts")
        yield from router(model, "feed_forward.gate")
    else:
        yield from linear("feed_forward.w1", hidden, model.intermediate_size, False)
        yield from linear("feed_forward.w3", hidden, model.intermediate_size, False)
        yield from linear("feed_forward.w2", model.intermediate_size, hidden, False)
    yield from norms(model, block)
