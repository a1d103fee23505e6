"""From logits to the log-probabilities of given tokens: what each method copies, saves and creates in backward.

`copied`: the rows are first joined into one matrix, which copies them unless there is only one row, and the copy is
saved. `fused`: one kernel over the logits as they are (TRL 1.14). Both return fp32, whatever the logits' dtype.
`selected`: `gather` from the logits, less the log-sum of each row (`selective_log_softmax` of TRL 0.15 to 1.13).
`whole`: `gather` from the log-softmax of all logits, which is saved.
"""

from __future__ import annotations

from vramwise.ghost.dtypes import FP32, INT64
from vramwise.ghost.ops.elementwise import without_node
from vramwise.ghost.ops.shape import contiguous, view
from vramwise.ghost.tape import Grads, Node, Tape, Tensor


def _to_logits(t: Tape, node: Node, grad: Tensor) -> Grads:
    return (t.new(*node.extra),)


def copied_log_probs(t: Tape, logits: Tensor) -> Tensor:
    """Log-probabilities (rows, tokens) of logits (rows, tokens, words) through a flat copy."""
    rows, tokens, words = logits.shape
    flat = logits if rows == 1 else contiguous(t, logits)
    flat = view(t, flat, (rows * tokens, words))
    index = t.new((rows * tokens,), INT64)
    out = t.new((rows * tokens, 1), FP32)
    log_sums = t.new((rows * tokens,), FP32)
    if t.grad_enabled and flat.node is not None:
        out.node = t.node(_to_logits, (flat,), (flat, index, log_sums))
        out.node.extra = (flat.shape, flat.dtype)
    return out


def fused_log_probs(t: Tape, logits: Tensor) -> Tensor:
    """The same in one kernel, which also returns the entropy."""
    shape = logits.shape[:-1]
    out = t.new(shape, FP32)
    entropy = t.new(shape, FP32)
    log_sums = t.new(shape, FP32)
    expected = t.new(shape, FP32)
    if t.grad_enabled and logits.node is not None:
        out.node = t.node(_to_logits, (logits,), (logits, log_sums, expected))
        out.node.extra = (logits.shape, logits.dtype)
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
    out = t.new(logits.shape[:-1], logits.dtype)
    if t.grad_enabled and logits.node is not None:
        out.node = t.node(_to_log_softmax, (logits,), (result,))
        out.node.extra = (logits.shape, logits.dtype)
    return out


def _laid_into_whole(t: Tape, node: Node, grad: Tensor) -> Grads:
    return (t.new(node.extra, grad.dtype),)


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
    if t.grad_enabled and whole.node is not None:
        base.node = t.node(_copy_slices, (whole,), ())
        base.node.extra = shape
    numel = 1
    for side in shape:
        numel *= side
    out = Tensor(whole.storage, shape, numel, whole.dtype)
    out.view = True
    if base.node is not None:
        out.node = t.node(_laid_into_whole, (base,), ())
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
    if t.grad_enabled and (hidden.node is not None or weight.node is not None):
        out.node = t.node(_to_hidden, (hidden, weight), (hidden, weight, log_sums, entropy))
        out.node.extra = (hidden, weight, chunk)
    return out


def _tile(t: Tape, hidden: Tensor, chunk: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Allocate a tile in the dtype of the hidden states, and in fp32."""
    return t.new(chunk, t.autocast or hidden.dtype), t.new(chunk, FP32)
