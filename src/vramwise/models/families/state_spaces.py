"""Families with state-space layers: Falcon-H1, Granite 4, Nemotron-H and Jamba.

- Falcon-H1: attention and a Mamba 2 layer side by side in every block.
- Granite 4: Mamba 2 layers with some of attention between them; experts beside a shared MLP, or that MLP alone.
- Nemotron-H and Nemotron 3: each layer is one part: Mamba 2, attention without positions, an MLP or experts.
- Jamba: Mamba layers with one of attention in eight; experts in every other layer; no rotary positions.
"""

from __future__ import annotations

from typing import Any

from vramwise.models.families.base import Block, Found
from vramwise.models.families.config_fields import Fields
from vramwise.models.families.parts import (
    Parameter,
    Parts,
    attention,
    experts,
    linear,
    mlp,
    norm,
    norms,
    projections,
    router,
)
from vramwise.types import ModelSpec

_Sizes = tuple[tuple[str, int], ...]


def _mamba2(
    model: ModelSpec, place: str, *, bias: bool = False, out_bias: bool = False, conv_bias: bool = True
) -> Parts:
    """Mamba 2: time steps and decays of the heads, a convolution, an input projection, an optional norm, an output
    projection.
    """
    width, heads = model.size("state_width"), model.size("state_heads")
    convolved = width + 2 * model.size("state_groups") * model.size("state_size")
    for name in ("dt_bias", "A_log", "D"):
        yield Parameter(f"{place}.{name}", (heads,), "other")
    yield Parameter(f"{place}.conv1d.weight", (convolved, 1, model.size("state_taps")), "other")
    if conv_bias:
        yield Parameter(f"{place}.conv1d.bias", (convolved,), "other")
    yield from linear(f"{place}.in_proj", model.hidden_size, width + convolved + heads, bias)
    if model.size("state_norm"):
        yield Parameter(f"{place}.norm.weight", (width,), "norm")
    yield from linear(f"{place}.out_proj", width, model.hidden_size, out_bias)


def _mamba_sizes(fields: Fields, *, width: int, norm: bool, scaled: bool = False) -> _Sizes:
    """Return the sizes of a Mamba 2 layer from the fields that Granite and Falcon use."""
    return (
        ("state_width", width),
        ("state_heads", fields.integer("mamba_n_heads")),
        ("state_size", fields.integer("mamba_d_state")),
        ("state_groups", fields.integer("mamba_n_groups")),
        ("state_chunk", fields.integer("mamba_chunk_size")),
        ("state_taps", fields.integer("mamba_d_conv")),
        ("state_norm", int(norm)),
        ("state_scaled", int(scaled)),
        ("state_conv_bias", int(fields.flag("mamba_conv_bias"))),
        ("state_bias", int(fields.flag("mamba_proj_bias"))),
    )


def falcon_h1_settles(fields: Fields, found: Found) -> Found:
    """Return what follows from several fields."""
    width = fields.optional_integer("mamba_d_ssm") or fields.integer("mamba_expand") * found["hidden_size"]
    sizes = _mamba_sizes(fields, width=width, norm=fields.flag("mamba_rms_norm"), scaled=True)
    return {
        "sizes": (*sizes, ("state_out_bias", int(fields.flag("projectors_bias")))),
        "layer_types": ("hybrid",) * found["num_hidden_layers"],
    }


def falcon_h1_layer(model: ModelSpec, block: Block, layer: int) -> Parts:
    """Return the parameters of one layer."""
    yield from mlp(model, "feed_forward")
    flags = (model.size(f"state_{name}") > 0 for name in ("bias", "out_bias", "conv_bias"))
    bias, out_bias, conv_bias = flags
    yield from _mamba2(model, "mamba", bias=bias, out_bias=out_bias, conv_bias=conv_bias)
    yield from attention(model, block)
    yield from norms(model, block)


_GRANITE_KINDS = {"mamba": "linear_attention", "attention": "full_attention"}


def granite_settles(fields: Fields, found: Found) -> Found:
    """Set the kinds of layers, the Mamba sizes and the shared MLP's width.

    Older files name the kinds mamba and attention. Rotary positions are used only if the file says rope.
    """
    written = fields.texts("layer_types") or fields.texts("layers_block_type")
    kinds = tuple(_GRANITE_KINDS.get(kind, kind) for kind in written or ("mamba",) * found["num_hidden_layers"])
    width = fields.integer("mamba_expand") * found["hidden_size"]
    settled: dict[str, Any] = {"layer_types": kinds, "sizes": _mamba_sizes(fields, width=width, norm=True)}
    if fields.text("position_embedding_type") != "rope":
        settled["rotary_fraction"] = 0.0
    settled["shared_expert_intermediate_size"] = fields.integer("shared_intermediate_size")
    return settled


def granite_layer(model: ModelSpec, block: Block, layer: int) -> Parts:
    """Return the parameters of one layer."""
    yield from norms(model, block)
    if model.num_experts:
        yield from router(model, "block_sparse_moe.router")
        yield from experts(model, "block_sparse_moe.experts")
    shared = model.shared_expert_intermediate_size
    yield from linear("shared_mlp.input_linear", model.hidden_size, 2 * shared, False)
    yield from linear("shared_mlp.output_linear", shared, model.hidden_size, False)
    if model.layer_types[layer] == "full_attention":
        yield from projections(model, block)
    else:
        conv_bias = model.size("state_conv_bias") > 0
        yield from _mamba2(model, "mamba", bias=model.size("state_bias") > 0, conv_bias=conv_bias)


_NEMOTRON_LETTERS = {"M": "linear_attention", "E": "moe", "*": "full_attention", "-": "mlp"}
_NEMOTRON_KINDS = {"mamba": "linear_attention", "attention": "full_attention"}


def nemotron_settles(fields: Fields, found: Found) -> Found:
    """Set the kinds of layers, which the file gives as a list of words or as one letter for each layer."""
    written = fields.texts("layer_types") or fields.texts("layers_block_type")
    if written is None:
        pattern = fields.text("hybrid_override_pattern") or ""
        if not pattern or set(pattern) - set(_NEMOTRON_LETTERS):
            raise fields.wrong("hybrid_override_pattern", "must say for each layer what it is: M, E, * or -")
        written = tuple(_NEMOTRON_LETTERS[letter] for letter in pattern)
    kinds = tuple(_NEMOTRON_KINDS.get(kind, kind) for kind in written)
    return {
        "num_hidden_layers": len(kinds),
        "layer_types": kinds,
        "dense_layers": tuple(layer for layer, kind in enumerate(kinds) if kind != "moe"),
        "rotary_fraction": 0.0,
        "shared_expert_intermediate_size": fields.integer("moe_shared_expert_intermediate_size"),
        "sizes": _nemotron_sizes(fields),
    }


def _nemotron_sizes(fields: Fields) -> tuple[tuple[str, int], ...]:
    heads = fields.integer("mamba_num_heads")
    return (
        ("state_width", heads * fields.integer("mamba_head_dim")),
        ("state_heads", heads),
        ("state_size", fields.integer("ssm_state_size")),
        ("state_groups", fields.integer("mamba_n_groups", "n_groups")),
        ("state_chunk", fields.integer("mamba_chunk_size", "chunk_size")),
        ("state_taps", fields.integer("mamba_d_conv", "conv_kernel")),
        ("state_norm", 1),
        ("moe_latent_size", fields.count("moe_latent_size")),
        ("state_conv_bias", int(fields.flag("mamba_conv_bias", "use_conv_bias"))),
        ("state_bias", int(fields.flag("mamba_proj_bias"))),
    )


def nemotron_layer(model: ModelSpec, block: Block, layer: int) -> Parts:
    """Return the parameters of one layer."""
    yield from norm("norm", model, block)
    match model.layer_types[layer]:
        case "linear_attention":
            bias, conv_bias = model.size("state_bias") > 0, model.size("state_conv_bias") > 0
            yield from _mamba2(model, "mixer", bias=bias, out_bias=bias, conv_bias=conv_bias)
        case "full_attention":
            yield from projections(model, block)
        case "moe":
            yield from _nemotron_experts(model)
        case _:
            yield from _nemotron_mlp("mixer", model, model.intermediate_size)


def _nemotron_mlp(name: str, model: ModelSpec, size: int) -> Parts:
    yield from linear(f"{name}.up_proj", model.hidden_size, size, model.mlp_bias)
    yield from linear(f"{name}.down_proj", size, model.hidden_size, model.mlp_bias)


def _nemotron_experts(model: ModelSpec) -> Parts:
    latent = model.size("moe_latent_size")
    inner, size, count = latent or model.hidden_size, model.moe_intermediate_size, model.num_experts
    yield Parameter("mixer.experts.up_proj", (count, size, inner), "experts")
    yield Parameter("mixer.experts.down_proj", (count, inner, size), "experts")
    yield Parameter("mixer.gate.weight", (count, model.hidden_size), "router")
    yield from _nemotron_mlp("mixer.shared_experts", model, model.shared_expert_intermediate_size)
    if latent:
        yield from linear("mixer.fc1_latent_proj", model.hidden_size, latent, model.mlp_bias)
        yield from linear("mixer.fc2_latent_proj", latent, model.hidden_size, model.mlp_bias)


def jamba_settles(fields: Fields, found: Found) -> Found:
    """Return what follows from several fields."""
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


def jamba_layer(model: ModelSpec, block: Block, layer: int) -> Parts:
    """Return the parameters of one layer."""
    yield from projections(model, block) if model.layer_types[layer] == "full_attention" else _mamba(model)
    if model.num_experts > 1 and layer not in model.dense_layers:
        yield from router(model, "feed_forward.router")
        yield from experts(model, "feed_forward.experts")
    else:
        yield from mlp(model, "feed_forward")
    yield from norms(model, block)
