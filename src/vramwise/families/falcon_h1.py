"""Falcon-H1: attention and a Mamba 2 layer side by side in every block."""

from __future__ import annotations

from vramwise.families.base import Block, Found
from vramwise.families.config_fields import Fields
from vramwise.families.parts import Parts, attention, mlp, norms
from vramwise.families.state_spaces import mamba2, mamba_sizes
from vramwise.types import ModelSpec


def settles(fields: Fields, found: Found) -> Found:
    """What follows from several fields."""
    width = fields.optional_integer("mamba_d_ssm") or fields.integer("mamba_expand") * found["hidden_size"]
    sizes = mamba_sizes(fields, width=width, norm=fields.flag("mamba_rms_norm"), scaled=True)
    return {
        "sizes": (*sizes, ("state_out_bias", int(fields.flag("projectors_bias")))),
        "layer_types": ("hybrid",) * found["num_hidden_layers"],
    }


def layer_parts(model: ModelSpec, block: Block, layer: int) -> Parts:
    """The parameters of one layer."""
    yield from mlp(model, "feed_forward")
    flags = (model.size(f"state_{name}") > 0 for name in ("bias", "out_bias", "conv_bias"))
    bias, out_bias, conv_bias = flags
    yield from mamba2(model, "mamba", bias=bias, out_bias=out_bias, conv_bias=conv_bias)
    yield from attention(model, block)
    yield from norms(model, block)
