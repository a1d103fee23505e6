"""From logits to the log-probabilities of given tokens: what each method copies, saves and creates in backward.

- `copied`: the rows are first joined into one matrix, which copies them unless there is only one row, and the copy is
  saved. `fused`: one kernel over the logits as they are (TRL 1.14). Both return fp32, whatever the logits' dtype.
- `selected`: `gather` from the logits, less the log-sum of each row (`selective_log_softmax` of TRL 0.15 to 1.13).
- `whole`: `gather` from the log-softmax of all logits, which is saved.
- `chunked` and `tiled`: from hidden states, never any whole logits. `tiled` follows TRL 1.16's
  `ChunkedLogProbFunction`: one buffer for a tile of tokens × words in the compute dtype, which is autocast's; a slice
  of a weight in another dtype is cast for each tile. Backward computes the tiles again and sums gradients in fp32.
"""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.ghost.dtypes import BOOL, FP32, INT64, DType
from vramwise.ghost.ops.elementwise import cast, gradient_as, gradient_of_shape, without_node
from vramwise.ghost.ops.shape import contiguous, view
from vramwise.ghost.tape import Grads, Node, Tape, Tensor
from vramwise.ghost.work import piece_of


def copied_log_probs(t: Tape, logits: Tensor) -> Tensor:
    """Log-probabilities (rows, tokens) of logits (rows, tokens, words) through a flat copy."""
    rows, tokens, words = logits.shape
    flat = logits if rows == 1 else contiguous(t, logits)
    flat = view(t, flat, (rows * tokens, words))
    index = t.new((rows * tokens,), INT64)
    out = t.new((rows * tokens, 1), FP32)
    log_sums = t.new((rows * tokens,), FP32)
    return t.record(out, gradient_as, (flat,), (flat, index, log_sums), (flat.shape, flat.dtype))


def fused_log_probs(t: Tape, logits: Tensor) -> Tensor:
    """Return the same in one kernel, which also returns the entropy."""
    shape = logits.shape[:-1]
    out = t.new(shape, FP32)
    entropy = t.new(shape, FP32)
    log_sums = t.new(shape, FP32)
    expected = t.new(shape, FP32)
    t.record(out, gradient_as, (logits,), (logits, log_sums, expected), (logits.shape, logits.dtype))
    del entropy
    return out


def _to_selected(t: Tape, node: Node, grad: Tensor) -> Grads:
    """Return the gradient: zeros for what was gathered, each row's softmax, and the rows stacked together."""
    gathered = t.new(*node.extra)
    rows = t.new(*node.extra)
    out = t.new(*node.extra)
    del rows, gathered
    return (out,)


def selected_log_probs(t: Tape, logits: Tensor) -> Tensor:
    """Gathered logits less their log-sums, row by row: nothing is copied before backward."""
    out = t.new(logits.shape[:-1], FP32)
    log_sums = t.new(logits.shape[:-1], FP32)
    if t.grad_enabled and logits.node is not None:
        out.node = t.node(_to_selected, (logits,), (logits, log_sums))
        out.node.extra = (logits.shape, logits.dtype)
    return out


def _to_log_softmax(t: Tape, node: Node, grad: Tensor) -> Grads:
    """Return the gradient: zeros of the full size, to which the gathered gradients are added."""
    zeros = t.new(*node.extra)
    out = t.like(zeros)
    del zeros
    return (out,)


def whole_log_probs(t: Tape, logits: Tensor) -> Tensor:
    """`gather(logits.log_softmax(-1), …)`: a slice of the logits is made contiguous while the kernel runs."""
    result = t.new(logits.shape, logits.dtype)
    if logits.shape[0] > 1:
        together = t.new(logits.shape, logits.dtype)
        del together
    return t.record(
        t.new(logits.shape[:-1], logits.dtype), _to_log_softmax, (logits,), (result,), (logits.shape, logits.dtype)
    )


def _copy_slices(t: Tape, node: Node, grad: Tensor) -> Grads:
    """Copy the whole gradient; clone its slice, divide it, and put it back."""
    result = t.like(grad)
    cloned = t.new(node.extra, grad.dtype)
    divided = t.like(cloned)
    del divided, cloned
    return (result,)


def divide_slice_in_place(t: Tape, whole: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`part = whole[...]; part.div_(x)`: a view, but autograd rewrites the whole's history (CopySlices)."""
    base = without_node(whole)
    t.record(base, _copy_slices, (whole,), (), shape)
    numel = 1
    for side in shape:
        numel *= side
    out = Tensor(whole.storage, shape, numel, whole.dtype)
    out.view = True
    if base.node is not None:
        out.node = t.node(gradient_of_shape, (base,), ())
        out.node.extra = whole.shape
    return out


def _to_hidden(t: Tape, node: Node, grad: Tensor) -> Grads:
    """Compute slices of logits again, and gradients in fp32, which are cast at the end."""
    hidden, weight, chunk = node.extra
    summed = t.new(hidden.shape, FP32)
    to_weight = t.new(weight.shape, FP32) if node.edges[1] is not None else None
    buffers = _tile(t, hidden, chunk)
    temporary = t.new(buffers[1].shape, FP32)
    t.workspace()
    del temporary, buffers
    cast_hidden = t.like(summed, hidden.dtype)
    cast_weight = None if to_weight is None else t.like(to_weight, weight.dtype)
    del summed, to_weight
    return cast_hidden, cast_weight


def chunked_log_probs(t: Tape, hidden: Tensor, weight: Tensor, *, tokens: int = 4096, words: int = 8192) -> Tensor:
    """From hidden states (tokens, width) without logits: one tile at a time, computed again in backward."""
    count = hidden.shape[0]
    log_sums = t.new((count,), FP32)
    out = t.new((count,), FP32)
    entropy = t.new((count,), FP32)
    chunk = (min(count, tokens), min(words, weight.shape[0]))
    buffers = _tile(t, hidden, chunk)
    shifted = t.new(chunk, FP32)
    exponents = t.new(chunk, FP32)
    t.workspace()
    del shifted
    weighted = t.new(chunk, FP32)
    del weighted, exponents, buffers
    return t.record(out, _to_hidden, (hidden, weight), (hidden, weight, log_sums, entropy), (hidden, weight, chunk))


def _tile(t: Tape, hidden: Tensor, chunk: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Allocate a tile in the dtype of the hidden states, and in fp32."""
    return t.new(chunk, t.autocast or hidden.dtype), t.new(chunk, FP32)


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
        out.node = t.node(_tiled_backward, (hidden, weight), saved)
        out.node.extra = (hidden.shape, hidden.dtype, weight, compute)
    return out


def summed(t: Tape, log_probs: Tensor) -> Tensor:
    """Return a scalar from all of them; reshaping them to the batch is negligible."""
    return t.record(t.new((), FP32), gradient_as, (log_probs,), (), (log_probs.shape, FP32))


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


def _tiled_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
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
