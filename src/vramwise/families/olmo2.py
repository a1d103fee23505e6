"""OLMo 2 and 3: norms after attention and MLP only, q and k normed over their full width, tables in fp32."""

from __future__ import annotations

from dataclasses import replace

from vramwise.families.base import ATTENTION_BIAS, FULL_NORM, Block, model_type
from vramwise.families.layout import Family

_SIZES = (50304, 11008, 32, None, 2048)
_BLOCK = Block(
    order="post",
    norms=("post_attention_layernorm", "post_feedforward_layernorm"),
    norm="weight in fp32",
    rotation="in fp32 tables",
    tables="in fp32",
)

FAMILY = Family(
    name="olmo2",
    block=_BLOCK,
    types={
        "olmo2": model_type(sizes=_SIZES, fixed=FULL_NORM, switches=ATTENTION_BIAS),
        "olmo3": model_type(
            sizes=_SIZES,
            fixed=FULL_NORM,
            switches=ATTENTION_BIAS,
            block=replace(_BLOCK, masks_by_kind=True),
            sliding_window=4096,
            sliding_window_pattern=4,
            window="pattern",
        ),
    },
)
