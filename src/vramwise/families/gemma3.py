"""Gemma 3: Gemma 2 without soft caps, with norms of each head and a rotary table of its own for sliding layers."""

from __future__ import annotations

from dataclasses import replace

from vramwise.families import gemma, gemma2
from vramwise.families.base import ATTENTION_BIAS, HEAD_NORM, model_type
from vramwise.families.layout import Family

FAMILY = Family(
    name="gemma3",
    block=replace(gemma2.BLOCK, head_norms_run="after projections", local_tables=True, liger_takes_head_norms=True),
    types={
        "gemma3_text": model_type(
            sizes=(262208, 9216, 8, 4, 131072),
            fixed={"norms_per_block": 4, **HEAD_NORM},
            switches=ATTENTION_BIAS,
            activation=("hidden_activation", "hidden_act"),
            sliding_window=4096,
            sliding_window_pattern=6,
            window="pattern",
            **gemma.DEFAULTS,
        )
    },
)
