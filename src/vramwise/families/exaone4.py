"""EXAONE 4: norms after attention and MLP only, norms of each head; full layers beside sliding ones are not turned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.families.base import HEAD_NORM, Block, model_type
from vramwise.families.config_fields import Fields
from vramwise.families.layout import Family


def _settles(fields: Fields, found: Mapping[str, Any]) -> Mapping[str, Any]:
    if found["sliding_window"] is None:
        return {}
    kinds = found["layer_types"]
    return {"nope_layers": tuple(layer for layer, kind in enumerate(kinds) if kind != "sliding_attention")}


FAMILY = Family(
    name="exaone4",
    block=Block(
        order="post",
        norms=("post_attention_layernorm", "post_feedforward_layernorm"),
        head_norms_run="after projections",
        masks_by_kind=True,
        liger_takes_head_norms=True,
    ),
    types={
        "exaone4": model_type(
            sizes=(102400, 16384, 32, 32, 2048),
            fixed=HEAD_NORM,
            sliding_window=4096,
            sliding_window_pattern=4,
            window="pattern",
            settles=_settles,
        )
    },
)
