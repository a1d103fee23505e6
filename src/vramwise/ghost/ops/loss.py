"""Cross entropy and the embedding table: the ops whose size is the vocabulary's."""

from __future__ import annotations

from vramwise.ghost.dtypes import FP32, INT64
from vramwise.ghost.ops.elementwise import without_node
from vramwise.ghost.tape import Grads, Node, Storage, Tape, Tensor

# up to this many tokens the embedding's gradient is added up directly; above, the token ids are sorted first
_UNSORTED_TOKENS = 3072


def _log_softmax_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    return (t.like(grad),)


def log_softmax(t: Tape, x: Tensor) -> Tensor:
    """`log_softmax(x, -1)`: saves its result."""
    out = t.like(x)
    if t.grad_enabled and x.node is not None:
        out.node = t.node(_log_softmax_backward, (x,), (without_node(out),))
    return out


def _nll_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    return (t.new(node.extra, FP32),)


def nll_loss(t: Tape, x: Tensor, target: Tensor) -> Tensor:
    """`nll_loss` with a sum or mean: two scalars; saves the log-probabilities' shape, the targets and the total
    weight."""
    out = t.new((), x.dtype)
    total_weight = t.new((), x.dtype)
    if t.grad_enabled and x.node is not None:
        out.node = t.node(_nll_backward, (x,), (without_node(x), target, total_weight))
        out.node.extra = x.shape
    del total_weight
    return out


def _embedding_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    shape, tokens = node.extra
    if tokens <= _UNSORTED_TOKENS:
        return (t.new(shape, grad.dtype),)
    sorted_ids = t.new((tokens,), INT64)
    order = t.new((tokens,), INT64)
    positions = t.new((tokens,), INT64)
    sort_space = Storage(t, _sort_bytes(tokens))
    del sort_space
    del positions
    out = t.new(shape, grad.dtype)
    _segments(t, shape, tokens)
    del order, sorted_ids
    return (out,)


def _sort_bytes(count: int) -> int:
    """Temporary space of CUB's radix sort of (int64, int64) pairs: a second copy of keys and values, plus
    histograms."""
    return 2 * count * 8


def _segments(t: Tape, shape: tuple[int, ...], tokens: int) -> None:
    """Partial sums of one row per segment of equal ids, in fp32."""
    counts = t.new((tokens,), INT64)
    del counts


def embedding(t: Tape, weight: Tensor, ids: Tensor) -> Tensor:
    """A lookup: saves the ids; the gradient has the whole table's size."""
    out = t.new((*ids.shape, weight.shape[1]), weight.dtype)
    if t.grad_enabled and weight.node is not None:
        out.node = t.node(_embedding_backward, (weight,), (ids,))
        out.node.extra = (weight.shape, ids.numel)
    return out
