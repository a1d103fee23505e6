"""What the words of a family's block mean here: one table a word, from the word to the layer that runs it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from vramwise.ghost.model.attention import AttentionLayer, ChunkedAttention, FalconAttention, SlicedAttention
from vramwise.ghost.model.norms import CohereNorm, GemmaNorm, Norm, RmsNorm, WideRmsNorm
from vramwise.ghost.model.rotary import (
    Rotation,
    rotate,
    rotate_halves,
    rotate_in_fp32,
    rotate_inline,
    rotate_part,
    rotate_then_join,
    rotate_wide,
)
from vramwise.ghost.tape import Parameter
from vramwise.models.families.base import FusedAttention
from vramwise.models.families.base import Rotation as RotationWord

NORMS: dict[str, Callable[[Parameter], Norm]] = {
    "stock": RmsNorm,
    "one plus weight": GemmaNorm,
    "weight in fp32": WideRmsNorm,
    "layer without bias": CohereNorm,
}
FUSED_ATTENTION: dict[FusedAttention, Callable[..., AttentionLayer]] = {
    "cut by width": SlicedAttention,
    "cut head by head": ChunkedAttention,
    "cut in thirds": partial(ChunkedAttention, by_head=False),
    "copied by index": FalconAttention,
}
ROTATIONS: dict[RotationWord, Rotation] = {
    "whole": rotate,
    "part": rotate_part,
    "parts, then joined": rotate_then_join,
    "inside attention": rotate_inline,
    "in fp32 tables": rotate_wide,
    "halves": rotate_halves,
    "in fp32": rotate_in_fp32,
}
