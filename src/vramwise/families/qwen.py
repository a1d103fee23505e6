"""Qwen 2 and 3: llama with biases on q, k and v (2) or norms of each head (3); the text models of their vision kin."""

from __future__ import annotations

from dataclasses import replace

from vramwise.families.base import ATTENTION_BIAS, HEAD_NORM, LLAMA_BLOCK, model_type
from vramwise.families.layout import Family

_SIZES = (151936, 22016, 32, 32, 32768)
_BLOCK = replace(LLAMA_BLOCK, masks_by_kind=True)
_QWEN2 = model_type(
    sizes=_SIZES,
    fixed={"qkv_bias": True},
    sliding_window=4096,
    max_window_layers=28,
    window="late",
)
_QWEN3 = model_type(
    sizes=_SIZES,
    fixed=HEAD_NORM,
    switches=ATTENTION_BIAS,
    head_dim=128,
    sliding_window=4096,
    max_window_layers=28,
    window="late",
)
# MiMo: Qwen 2's block under a name of its own, with code on the hub; its layer for several tokens at once is left out.
_MIMO = replace(_QWEN2, settles=lambda fields, found: {"left_out": "layers that predict further tokens (mimo)"})
# Older Qwen2-VL files have the text fields beside vision_config rather than in text_config.
_QWEN2_VL = ("qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text")

FAMILY = Family(
    name="qwen",
    block=_BLOCK,
    types={
        "qwen2": _QWEN2,
        "qwen3": _QWEN3,
        "mimo": _MIMO,
        **dict.fromkeys(_QWEN2_VL, replace(_QWEN2, block=LLAMA_BLOCK)),
        "qwen3_vl_text": replace(_QWEN3, block=replace(LLAMA_BLOCK, liger_takes_head_norms=True)),
    },
)
