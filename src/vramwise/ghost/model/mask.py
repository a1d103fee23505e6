"""Causal masks as transformers' masking_utils builds them: none where the kernel's own causality suffices.

Whether rows are padded decides: a batch without padding needs no mask under sdpa; with padding a boolean (batch, 1,
tokens,
tokens) is made from broadcast comparisons. Eager attention always gets one, as floats.
"""

from __future__ import annotations

from vramwise.ghost.dtypes import BOOL, INT64, DType
from vramwise.ghost.ops.reduce import sum_all
from vramwise.ghost.tape import Tape, Tensor


def _all_set(t: Tape, flags: Tensor) -> None:
    """`flags.sum() == flags.numel()`"""
    count = sum_all(t, flags)
    equal = t.new((), BOOL)
    del count, equal


def _range(t: Tape, count: int) -> Tensor:
    """`arange(n) + offset`"""
    plain = t.new((count,), INT64)
    shifted = t.like(plain)
    del plain
    return shifted


def _combine(t: Tape, batch: int, tokens: int, *, window: bool, packed: bool) -> Tensor:
    """Return comparisons, joined by `&`: causal (and window) over tokens, then samples or padding over the batch."""
    result = t.new((), BOOL)
    causal = _window(t, tokens) if window else t.new((1, 1, tokens, tokens), BOOL)
    joined = _join(t, result, causal)
    del causal
    result = joined
    del joined
    return _join(t, result, _samples(t, batch, tokens) if packed else _indexed(t, batch, tokens, BOOL))


def _window(t: Tape, tokens: int) -> Tensor:
    """Within the window, and not in the future."""
    result = t.new((), BOOL)
    shifted = t.new((tokens,), INT64)
    inside = t.new((1, 1, tokens, tokens), BOOL)
    del shifted
    joined = _join(t, result, inside)
    del inside
    result = joined
    del joined
    result = _join(t, result, t.new((1, 1, tokens, tokens), BOOL))
    return result  # noqa: RET504 - frees what it replaces


def _indexed(t: Tape, batch: int, tokens: int, dtype: DType) -> Tensor:
    """Return an indexed read, whose indices are expanded to one shape first."""
    first = t.new((batch, tokens), INT64)
    second = t.new((batch, tokens), INT64)
    out = t.new((batch, 1, 1, tokens), dtype)
    del second
    del first
    return out


def _samples(t: Tape, batch: int, tokens: int) -> Tensor:
    """`sample[batch_index, query_index] == sample[batch_index, key_index]`"""
    queries, keys = (_indexed(t, batch, tokens, INT64) for _ in range(2))
    out = t.new((batch, 1, tokens, tokens), BOOL)
    del queries, keys
    return out


def _join(t: Tape, left: Tensor, right: Tensor) -> Tensor:
    """`left & right`"""
    return t.new(_broadcast(left.shape, right.shape), BOOL)


def _broadcast(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    if len(left) < len(right):
        left, right = right, left
    right = (1,) * (len(left) - len(right)) + right
    return tuple([max(pair) for pair in zip(left, right, strict=True)])


def boolean_mask(t: Tape, read: Tensor, *, window: bool, packed: bool = False) -> Tensor:
    """Return mask itself, from the row's flags (True = a real token) or, `packed`, from the number of each sample."""
    batch, tokens = read.shape
    rows = t.new((batch,), INT64)
    heads = t.new((1,), INT64)
    queries = _range(t, tokens)
    keys = _range(t, tokens)
    mask = _combine(t, batch, tokens, window=window, packed=packed)
    del rows, heads, queries, keys
    return mask


def packed_mask(t: Tape, positions: Tensor, *, window: int | None = None) -> Tensor:
    """Return the mask of packed rows: transformers finds the samples in their positions."""
    samples = _numbered_samples(t, positions)
    windowed = window is not None and positions.shape[1] >= window
    return boolean_mask(t, samples, window=windowed, packed=True)


def _numbered_samples(t: Tape, positions: Tensor) -> Tensor:
    """`(diff(positions, prepend=…) != 1).cumsum(-1)`"""
    batch, tokens = positions.shape
    before = t.new((batch, tokens + 1), INT64)
    steps = t.new((batch, tokens), INT64)
    del before
    begins = t.new((batch, tokens), BOOL)
    counted = t.new((batch, tokens), INT64)
    numbers = t.new((batch, tokens), INT64)
    del counted, begins, steps
    return numbers


def sdpa_mask(t: Tape, attention_mask: Tensor, *, padded: bool, window: int | None = None) -> Tensor | None:
    """Return the mask that `scaled_dot_product_attention` is given, or None."""
    flags = t.new(attention_mask.shape, BOOL)
    tokens = flags.shape[1]
    windowed = window is not None and tokens >= window
    if not windowed:
        _all_set(t, flags)
        if not padded:
            return None
        _all_set(t, flags)
    return boolean_mask(t, flags, window=windowed)


def document_mask(t: Tape, rows: int, tokens: int) -> Tensor:
    """Return which tokens share a document, and not in the future: from positions, by the attention layer itself."""
    starts = t.new((rows, tokens), BOOL)
    documents = t.new((rows, tokens), INT64)
    del starts
    shared = t.new((rows, tokens, tokens), BOOL)
    order = t.new((tokens,), INT64)
    causal = t.new((tokens, tokens), BOOL)
    mask = t.new((rows, 1, tokens, tokens), BOOL)
    del documents, shared, order, causal
    return mask


def eager_mask(t: Tape, attention_mask: Tensor, dtype: DType, *, window: int | None = None) -> Tensor:
    """Return the mask as numbers that are added to the scores: 0 or the smallest of the type."""
    flags = t.new(attention_mask.shape, BOOL)
    mask = boolean_mask(t, flags, window=window is not None)
    low = t.new((), dtype)
    high = t.new((), dtype)
    floats = t.new(mask.shape, dtype)
    del high
    del low
    del mask
    del flags
    return floats
