"""HunYuan (dense): llama with norms of each head, after they were turned."""

from __future__ import annotations

from dataclasses import replace

from vramwise.families.base import ATTENTION_BIAS, HEAD_NORM, LLAMA_BLOCK, model_type
from vramwise.families.layout import Family

FAMILY = Family(
    name="hunyuan",
    block=replace(LLAMA_BLOCK, head_norms=("query_layernorm", "key_layernorm"), head_norms_run="after rotation"),
    types={
        "hunyuan_v1_dense": model_type(sizes=(290943, 11008, 32, None, 2048), fixed=HEAD_NORM, switches=ATTENTION_BIAS)
    },
)
