"""Mistral and Ministral: llama, with a window over every layer where the file sets one."""

from __future__ import annotations

from dataclasses import replace

from vramwise.families.base import LLAMA_BLOCK, model_type
from vramwise.families.layout import Family

_MISTRAL = model_type(sizes=(32000, 14336, 32, 8, 131072), sliding_window=4096, window="all")

FAMILY = Family(
    name="mistral",
    types={
        "mistral": _MISTRAL,
        "ministral": replace(_MISTRAL, block=replace(LLAMA_BLOCK, masks_by_kind=True)),
        "ministral3": model_type(sizes=(131072, 14336, 32, 8, 262144), head_dim=128, window="all"),
    },
)
