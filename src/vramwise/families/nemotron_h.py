"""Nemotron-H and Nemotron 3: each layer is one part: Mamba 2, attention without positions, an MLP or experts."""

from __future__ import annotations

from vramwise.families.base import Block, Found
from vramwise.families.config_fields import Fields
from vramwise.families.parts import Parameter, Parts, linear, norm, projections
from vramwise.families.state_spaces import mamba2
from vramwise.types import ModelSpec

_LETTERS = {"M": "linear_attention", "E": "moe", "*": "full_attention", "-": "mlp"}
_OLD = {"mamba": "linear_attention", "attention": "full_attention"}


def settles(fields: Fields, found: Found) -> Found:
    """Set the kinds of layers, which the file gives as a list of words or as one letter for each layer."""
    written = fields.texts("layer_types") or fields.texts("layers_block_type")
    if written is None:
        pattern = fields.text("hybrid_override_pattern") or ""
        if not pattern or set(pattern) - set(_LETTERS):
            raise fields.wrong("hybrid_override_pattern", "must say for each layer what it is: M, E, * or -")
        written = tuple(_LETTERS[letter] for letter in pattern)
    kinds = tuple(_OLD.get(kind, kind) for kind in written)
    return {
        "num_hidden_layers": len(kinds),
        "layer_types": kinds,
        "dense_layers": tuple(layer for layer, kind in enumerate(kinds) if kind != "moe"),
        "rotary_fraction": 0.0,
        "shared_expert_intermediate_size": fields.integer("moe_shared_expert_intermediate_size"),
        "sizes": _sizes(fields),
    }


def _sizes(fields: Fields) -> tuple[tuple[str, int], ...]:
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


def layer_parts(model: ModelSpec, block: Block, layer: int) -> Parts:
    """The parameters of one layer."""
    yield from norm("norm", model, block)
    match model.layer_types[layer]:
        case "linear_attention":
            bias, conv_bias = model.size("state_bias") > 0, model.size("state_conv_bias") > 0
            yield from mamba2(model, "mixer", bias=bias, out_bias=bias, conv_bias=conv_bias)
        case "full_attention":
            yield from projections(model, block)
        case "moe":
            yield from _experts(model)
        case _:
            yield from _mlp("mixer", model, model.intermediate_size)


def _mlp(name: str, model: ModelSpec, size: int) -> Parts:
    yield from linear(f"{name}.up_proj", model.hidden_size, size, model.mlp_bias)
    yield from linear(f"{name}.down_proj", size, model.hidden_size, model.mlp_bias)


def _experts(model: ModelSpec) -> Parts:
    latent = model.size("moe_latent_size")
    inner, size, count = latent or model.hidden_size, model.moe_intermediate_size, model.num_experts
    yield Parameter("mixer.experts.up_proj", (count, size, inner), "experts")
    yield Parameter("mixer.experts.down_proj", (count, inner, size), "experts")
    yield Parameter("mixer.gate.weight", (count, model.hidden_size), "router")
    yield from _mlp("mixer.shared_experts", model, model.shared_expert_intermediate_size)
    if latent:
        yield from linear("mixer.fc1_latent_proj", model.hidden_size, latent, model.mlp_bias)
        yield from linear("mixer.fc2_latent_proj", latent, model.hidden_size, model.mlp_bias)
