"""Rotary positions: the tables of cosines and sines, and their application to queries and keys."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.ghost.dtypes import FP32, DType
from vramwise.ghost.ops.elementwise import add, cast, mul, scale
from vramwise.ghost.ops.fused_layers import norm_and_turn
from vramwise.ghost.ops.shape import alias, cat_last, chunk_last, narrow
from vramwise.ghost.tape import Tape, Tensor

Rotation = Callable[[Tape, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def rotary_tables(
    t: Tape, dim: int, positions: Tensor, dtype: DType, *, by_product: bool = True, halves: bool = False
) -> tuple[Tensor, Tensor]:
    """Return cos and sin of (rows, tokens, dim), computed in fp32 and cast.

    `halves`: of half the width, for models that turn the two halves of a head separately (GPT-OSS).
    """
    rows, tokens = positions.shape
    floats = t.new((rows, 1, tokens), FP32)
    freqs = t.new((rows, tokens, dim // 2), FP32)
    if by_product:
        t.workspace()
    angles = freqs if halves else t.new((rows, tokens, dim), FP32)
    cos = scale(t, t.like(angles))
    sin = scale(t, t.like(angles))
    tables = cast(t, cos, dtype), cast(t, sin, dtype)
    del floats, freqs, angles, cos, sin
    return tables


def _over_heads(table: Tensor) -> Tensor:
    """`table.unsqueeze(1)`: a row's table is for all of its heads, however many rows have their own positions."""
    rows, tokens, width = table.shape
    return alias(table, (rows, 1, tokens, width))


def _turn_halves(t: Tape, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    cos, sin = _over_heads(cos), _over_heads(sin)
    first, second = chunk_last(t, x)
    first_turned = add(t, mul(t, first, cos), mul(t, second, sin))
    second_turned = add(t, mul(t, second, cos), mul(t, first, sin))
    return cat_last(t, (first_turned, second_turned))


def rotate_halves(t: Tape, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Return the two halves of each head by tables of half the width, then joined (GPT-OSS)."""
    q_turned = _turn_halves(t, q, cos, sin)
    k_turned = _turn_halves(t, k, cos, sin)
    return q_turned, k_turned


def _rotate_half(t: Tape, x: Tensor) -> Tensor:
    half = (*x.shape[:-1], x.shape[-1] // 2)
    first = narrow(t, x, half)
    second = narrow(t, x, half)
    return cat_last(t, (scale(t, second), first))


def turned(t: Tape, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`x * cos + rotate_half(x) * sin`"""
    cos, sin = _over_heads(cos), _over_heads(sin)
    return add(t, mul(t, x, cos), mul(t, _rotate_half(t, x), sin))


def rotate(t: Tape, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Turn whole heads."""
    q_turned = turned(t, q, cos, sin)
    k_turned = turned(t, k, cos, sin)
    return q_turned, k_turned


def rotate_part(t: Tape, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Turn the first part of each head and join the rest to it; also where the rest is empty (phi-3)."""
    part = cos.shape[-1]
    q_part, q_rest = _cut(t, q, part)
    k_part, k_rest = _cut(t, k, part)
    q_turned = cat_last(t, (turned(t, q_part, cos, sin), q_rest))
    k_turned = cat_last(t, (turned(t, k_part, cos, sin), k_rest))
    return q_turned, k_turned


def rotate_then_join(t: Tape, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same, with both parts turned before either is joined (GPT-NeoX)."""
    part = cos.shape[-1]
    q_part, q_rest = _cut(t, q, part)
    k_part, k_rest = _cut(t, k, part)
    q_turned = turned(t, q_part, cos, sin)
    k_turned = turned(t, k_part, cos, sin)
    q_turned = cat_last(t, (q_turned, q_rest))
    k_turned = cat_last(t, (k_turned, k_rest))
    return q_turned, k_turned


def rotate_inline(
    t: Tape, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, kept: list[Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Return same, written inside the attention (phi): the parts and what they were cut from stay until it returns."""
    part = cos.shape[-1]
    q_part, q_rest = _cut(t, q, part)
    k_part, k_rest = _cut(t, k, part)
    q_turned = turned(t, q_part, cos, sin)
    k_turned = turned(t, k_part, cos, sin)
    if kept is not None:
        kept += [q_turned, q_rest, k_turned, k_rest]
    return cat_last(t, (q_turned, q_rest)), cat_last(t, (k_turned, k_rest))


def rotate_wide(t: Tape, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Whole heads by tables in fp32, cast back afterwards (OLMo 2)."""
    outer = q.dtype
    q_turned = turned(t, q, cos, sin)
    k_turned = turned(t, k, cos, sin)
    return cast(t, q_turned, outer), cast(t, k_turned, outer)


def rotate_in_fp32(t: Tape, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Return queries and keys to fp32 first, turned, cast back (Cohere)."""
    outer = q.dtype
    q = cast(t, q, FP32)
    k = cast(t, k, FP32)
    q_turned = turned(t, q, cos, sin)
    k_turned = turned(t, k, cos, sin)
    both = cast(t, q_turned, outer), cast(t, k_turned, outer)
    del q, k, q_turned, k_turned
    return both


def turn_normed(t: Tape, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Norms of heads and the rotation by one kernel."""
    return norm_and_turn(t, q, k)


def _cut(t: Tape, x: Tensor, part: int) -> tuple[Tensor, Tensor]:
    lead = x.shape[:-1]
    return narrow(t, x, (*lead, part)), narrow(t, x, (*lead, x.shape[-1] - part))
