"""Ops as they are in compiled parts of a model."""

from __future__ import annotations

from vramwise.ghost.ops.elementwise import cast
from vramwise.ghost.tape import Grads, Node, Tape, Tensor


def add_product(t: Tape, result: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """`addmm(result, x, weight.T)`: a new tensor; the result's gradient is the incoming one."""
    low_weight = cast(t, weight, x.dtype)
    out = t.like(result)
    rows, inner = x.numel // x.shape[-1], x.shape[-1]
    if t.work is not None:
        t.work.product(out, rows, out.shape[-1], inner, dtype=x.dtype)
    t.workspace()
    if t.grad_enabled:
        out.node = t.node(_backward, (result, x, low_weight), (x, low_weight))
        out.node.extra = (x.shape, low_weight.shape)
    return out


def _backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    x_shape, weight_shape = node.extra
    rows = grad.numel // grad.shape[-1]
    to_x = to_weight = None
    if node.edges[2] is not None:
        to_weight = t.new(weight_shape, grad.dtype)
        if t.work is not None:
            t.work.product(to_weight, weight_shape[0], weight_shape[1], rows, dtype=grad.dtype)
    if node.edges[1] is not None:
        to_x = t.new(x_shape, grad.dtype)
        if t.work is not None:
            t.work.product(to_x, rows, x_shape[-1], grad.shape[-1], dtype=grad.dtype)
    t.workspace()
    return grad, to_x, to_weight
