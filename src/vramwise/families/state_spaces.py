"""Code shared by families with state-space layers: the parameters of Mamba 2, and its sizes under common names."""

from __future__ import annotations

from vramwise.families.config_fields import Fields
from vramwise.families.parts import Parameter, Parts, linear
from vramwise.types import ModelSpec

Sizes = tuple[tuple[str, int], ...]


def mamba2(
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


def mamba_sizes(fields: Fields, *, width: int, norm: bool, scaled: bool = False) -> Sizes:
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
