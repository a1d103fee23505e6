"""Removing padding: the rows of all tokens are gathered into one row of real ones, and put back."""

from __future__ import annotations

from vramwise.ghost.ops.shape import contiguous
from vramwise.ghost.tape import Grads, Node, Tape, Tensor

# small kernels that sort indices before rows are accumulated
_SORTING = 8


def _taken_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    out = t.new(*node.extra)
    if t.work is not None:
        t.work.stream(0, 0, count=_SORTING)
        t.work.stream(grad.numel * grad.dtype.size, grad.numel * grad.dtype.size, "scatter")
    return (out,)


def rows_taken(t: Tape, x: Tensor, indices: Tensor) -> Tensor:
    """`x.reshape(-1, heads, width)[indices]` for (batch, heads, tokens, width), whose tokens may be first in memory.

    The result is one row. Its gradient is added into zeros of x's shape.
    """
    if x.heads_first and x.shape[1] > 1:
        x = contiguous(t, x)
    out = t.new((1, x.shape[1], indices.numel, x.shape[3]), x.dtype)
    if t.grad_enabled and x.node is not None:
        out.node = t.node(_taken_backward, (x,), (indices,))
        out.node.extra = (x.shape, x.dtype)
    return out


def _put_back_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    return (t.new(*node.extra),)


def rows_put_back(t: Tape, x: Tensor, indices: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Write the rows into zeros of this shape; their gradient is gathered."""
    out = t.new(shape, x.dtype)
    if t.grad_enabled and x.node is not None:
        out.node = t.node(_put_back_backward, (x,), (indices,))
        out.node.extra = (x.shape, x.dtype)
    return out
