"""Falcon-H1: attention and a Mamba 2 layer side by side in every block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.families.base import ATTENTION_MLP_BIAS, Block, model_type
from vramwise.families.config_fields import Fields
from vramwise.families.layout import Family, Layout
from vramwise.families.parts import Parts, attention, mlp, norms
from vramwise.families.state_spaces import mamba2, mamba_sizes
from vramwise.types import ModelSpec


def _settles(fields: Fields, found: Mapping[str, Any]) -> Mapping[str, Any]:
    width = fields.optional_integer("mamba_d_ssm") or fields.integer("mamba_expand") * found["hidden_size"]
    sizes = mamba_sizes(fields, width=width, norm=fields.flag("mamba_rms_norm"), scaled=True)
    return {
        "sizes": (*sizes, ("state_out_bias", int(fields.flag("projectors_bias")))),
        "layer_types": ("hybrid",) * found["num_hidden_layers"],
    }


def _layer(model: ModelSpec, block: Block, layer: int) -> Parts:
    yield from mlp(model, "feed_forward")
    flags = (model.size(f"state_{name}") > 0 for name in ("bias", "out_bias", "conv_bias"))
    bias, out_bias, conv_bias = flags
    yield from mamba2(model, "mamba", bias=bias, out_bias=out_bias, conv_bias=conv_bias)
    yield from attention(model, block)
    yield from norms(model, block)


FAMILY = Family(
    name="falcon_h1",
    block=Block(
        norms=("input_layernorm", "pre_ff_layernorm"),
        feed_forward="feed_forward",
        mixers={"hybrid": "attention and state space"},
    ),
    layout=Layout(by_layer=_layer, final_norm="model.final_layernorm"),
    types={
        "falcon_h1": model_type(
            sizes=(128000, 14336, 32, 8, 8192),
            switches=ATTENTION_MLP_BIAS,
            settles=_settles,
            mamba_d_ssm=1024,
            mamba_n_heads=128,
            mamba_n_groups=1,
            mamba_d_state=256,
            mamba_d_conv=4,
            mamba_expand=2,
            mamba_chunk_size=256,
            mamba_conv_bias=True,
        )
    },
    measured=False,
    coarse="the scan of its state-space layers is summed up, not followed operation by operation",
)
