"""Gemma 2: Gemma, with norms before and after attention and MLP, soft caps, and a window every other layer."""

from __future__ import annotations

from dataclasses import replace

from vramwise.families import gemma
from vramwise.families.base import ATTENTION_BIAS, model_type
from vramwise.families.layout import Family

BLOCK = replace(
    gemma.BLOCK,
    order="sandwich",
    norms=(
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ),
    masks_by_kind=True,
    liger_norm_in_place=False,
)

FAMILY = Family(
    name="gemma2",
    block=BLOCK,
    types={
        "gemma2": model_type(
            sizes=(256000, 9216, 8, 4, 8192),
            fixed={"norms_per_block": 4},
            switches=ATTENTION_BIAS,
            activation=("hidden_activation", "hidden_act"),
            sliding_window=4096,
            sliding_window_pattern=2,
            window="pattern",
            attn_logit_softcapping=50.0,
            final_logit_softcapping=30.0,
            **gemma.DEFAULTS,
        )
    },
)
