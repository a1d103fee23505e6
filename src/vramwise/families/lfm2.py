"""LFM2 and its mixture of experts: short convolutions with some layers of attention between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.families.base import HEAD_NORM, Block, Mixture, model_type
from vramwise.families.config_fields import Fields
from vramwise.families.layout import Family, Layout
from vramwise.families.parts import Parameter, Parts, attention, linear, norms
from vramwise.types import ModelSpec


def _settles(fields: Fields, found: Mapping[str, Any]) -> Mapping[str, Any]:
    """The width of the MLP is two thirds of what the file says, rounded up, unless it says otherwise."""
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


def _layer(model: ModelSpec, block: Block, layer: int) -> Parts:
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
        count, size = model.num_experts, model.moe_intermediate_size
        yield Parameter("feed_forward.experts.gate_up_proj", (count, 2 * size, hidden), "experts")
        yield Parameter("feed_forward.experts.down_proj", (count, hidden, size), "experts")
        yield Parameter("feed_forward.gate.weight", (count, hidden), "router")
    else:
        yield from linear("feed_forward.w1", hidden, model.intermediate_size, False)
        yield from linear("feed_forward.w3", hidden, model.intermediate_size, False)
        yield from linear("feed_forward.w2", model.intermediate_size, hidden, False)
    yield from norms(model, block)


_COMMON: dict[str, Any] = {
    "fixed": HEAD_NORM,
    "own_sizes": ("conv_L_cache",),
    "settles": _settles,
    "computes_head_dim": True,
    "tie_word_embeddings": True,
    "conv_L_cache": 3,
}

FAMILY = Family(
    name="lfm2",
    block=Block(
        norms=("operator_norm", "ffn_norm"),
        attention=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj"),
        head_norms=("q_layernorm", "k_layernorm"),
        feed_forward="feed_forward",
        gated_mlp=("w1", "w3", "w2"),
        mixers={"conv": "conv"},
        mixture=Mixture(normalised=True, own_width=True),
    ),
    layout=Layout(by_layer=_layer, final_norm="model.embedding_norm"),
    types={
        "lfm2": model_type(
            sizes=(65536, 12288, 32, 8, 128000),
            block_multiple_of=256,
            block_ffn_dim_multiplier=1.0,
            block_auto_adjust_ff_dim=True,
            **_COMMON,
        ),
        "lfm2_moe": model_type(
            sizes=(65536, 7168, 32, 8, 128000),
            num_experts=32,
            num_experts_per_tok=4,
            moe_intermediate_size=1792,
            num_dense_layers=2,
            **_COMMON,
        ),
    },
    measured=False,
)
