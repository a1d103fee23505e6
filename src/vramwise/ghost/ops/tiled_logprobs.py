"""Log-probabilities from hidden states with the head's product in tiles of tokens × words: never any whole logits.

Follows TRL 1.16's `ChunkedLogProbFunction`: one buffer for a tile in the compute dtype, which is autocast's; a slice of
a weight in another dtype is cast for each tile. Backward computes the tiles again and sums gradients in fp32.
"""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.ghost.dtypes import BOOL, FP32, DType
from vramwise.ghost.ops.elementwise import cast, without_node
from vramwise.ghost.tape import Grads, Node, Tape, Tensor
from vramwise.ghost.work import piece_of

TOKENS, WORDS = 4096, 32768
# running maximum, sums, the best before the target, the target's logit…
_STATISTICS = 7


def tiled_log_probs(t: Tape, hidden: Tensor, weight: Tensor) -> Tensor:
    """Return one per token, from hidden states (tokens, width) and the head's weight (words, width)."""
    count = hidden.shape[0]
    compute = t.autocast or hidden.dtype
    if t.work is not None:
        t.work.function()
        _work(t, hidden.shape, weight.shape[0], compute, ())
    statistics = [t.new((count,), FP32) for _ in range(_STATISTICS)]
    names = _tiles(t, hidden, weight, compute, named=False)
    sums = t.new((count,), FP32)
    log_sums = t.new((count,), FP32)
    del sums
    out = t.new((count,), FP32)
    entropy = t.new((count,), FP32)
    first = t.new((count,), BOOL)
    del statistics, first, names
    if t.grad_enabled and (hidden.node is not None or weight.node is not None):
        # the function saves its inputs and some of its results
        saved = (without_node(hidden), weight, log_sums, entropy)
        out.node = t.node(_backward, (hidden, weight), saved)
        out.node.extra = (hidden.shape, hidden.dtype, weight, compute)
    return out


def summed(t: Tape, log_probs: Tensor) -> Tensor:
    """Return a scalar from all of them; reshaping them to the batch is negligible."""
    out = t.new((), FP32)
    if t.grad_enabled and log_probs.node is not None:
        out.node = t.node(_to_each, (log_probs,), ())
        out.node.extra = log_probs.shape
    return out


def _to_each(t: Tape, node: Node, grad: Tensor) -> Grads:
    return (t.new(node.extra, FP32),)


def _tiles(t: Tape, hidden: Tensor, weight: Tensor, compute: DType, *, named: bool) -> list[Tensor]:
    """Allocate every tile in one buffer. `named`: the weight's slice has a name, so it lives until the next one exists.

    Returns what has a name: it lives as long as the calling function, and so alongside what that creates last. Two
    chunks of tokens represent all, and the rows of one live until those of the next exist.
    """
    (count, width), words = hidden.shape, weight.shape[0]
    buffer = t.new((min(count, TOKENS), WORDS), compute)
    if t.work is not None:
        t.work.no_kernel(buffer)  # uninitialized, filled tile by tile
    rows: Tensor | None = None
    part: Tensor | None = None
    for start in range(0, min(count, 2 * TOKENS), TOKENS):
        if hidden.dtype is not compute:
            rows = t.new((min(TOKENS, count - start), width), compute)
        for first in range(0, words, WORDS):
            if weight.dtype is not compute:
                part = t.new((min(WORDS, words - first), width), compute)
            t.workspace()
            if not named:
                part = None
    return [tensor for tensor in (buffer, part, rows) if tensor is not None]  # a list frees its last element first


def _work(t: Tape, shape: tuple[int, ...], words: int, compute: DType, grads: Sequence[bool]) -> None:
    """Count a product and a kernel over its tile, for each; in backward also the products for the needed gradients."""
    work = t.work
    assert work is not None
    count, width = shape
    tall, wide = piece_of(count, TOKENS), piece_of(words, WORDS)
    for start in range(0, count, tall):
        rows = min(tall, count - start)
        for first in range(0, words, wide):
            columns = min(wide, words - first)
            tile = rows * columns * compute.size
            work.product(None, rows, columns, width, dtype=compute)
            work.stream(tile, tile if grads else 0)
            for wanted, sides in zip(grads, ((rows, width, columns), (columns, width, rows)), strict=False):
                if wanted:
                    work.product(None, *sides, dtype=compute)


def _backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    shape, dtype, weight, compute = node.extra
    if t.work is not None:
        t.work.function()
        _work(t, shape, weight.shape[0], compute, [edge is not None for edge in node.edges[:2]])
    to_hidden = t.new(shape, FP32) if node.edges[0] is not None else None
    to_weight = t.new(weight.shape, FP32) if node.edges[1] is not None else None
    names = _tiles(t, Tensor(None, shape, shape[0] * shape[1], dtype), weight, compute, named=True)
    narrow = None if to_hidden is None else cast(t, to_hidden, dtype)
    narrow_weight = None if to_weight is None else cast(t, to_weight, weight.dtype)
    del to_hidden, to_weight, names  # in the order in which the function's variables are freed
    return narrow, narrow_weight
