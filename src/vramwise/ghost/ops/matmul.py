"""Matrix products: linear layers and batched products, with autocast's casts before them.

Also `addmm`, which compiled parts of a model use.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from vramwise.ghost.dtypes import FP32
from vramwise.ghost.ops.elementwise import cast, without_node
from vramwise.ghost.ops.shape import contiguous
from vramwise.ghost.tape import Backward, Grads, Node, Parameter, Tape, Tensor

if TYPE_CHECKING:
    from vramwise.ghost.work import Work


def autocast_input(t: Tape, x: Tensor) -> Tensor:
    """Return an argument of a matrix product as autocast casts it.

    Copies of trainable fp32 weights are cached until autocast ends.
    """
    target = t.autocast
    if target is None or x.dtype is target or not x.dtype.floating:
        return x
    if x.dtype is not FP32 or not isinstance(x, Parameter) or x.node is None:
        return cast(t, x, target)
    key = id(x)
    found = t.casts.get(key)
    if found is None:
        before = t.mark("activations", "autocast copies of weights")
        found = t.casts[key] = cast(t, x, target)
        t.tag = before
    return found


def _linear_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    x_shape, w_shape = node.extra
    to_weight = to_x = None
    if node.edges[1] is not None:
        to_weight = t.new(w_shape, grad.dtype)
        t.workspace()
        to_weight.view = True  # it is returned through the weight's transpose
    if node.edges[0] is not None:
        to_x = t.new(x_shape, grad.dtype)
        t.workspace()
        to_x.view = len(x_shape) > 2
    if t.work is not None:
        _list_backward(t.work, grad, to_x, to_weight)
    return to_x, to_weight


def _biased_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    x_shape, w_shape = node.extra
    to_weight = to_x = None
    if node.edges[2] is not None:
        to_x = t.new(x_shape, grad.dtype)
        t.workspace()
        to_x.view = len(x_shape) > 2
    if node.edges[1] is not None:
        to_weight = t.new(w_shape, grad.dtype)
        t.workspace()
        to_weight.view = True
    if t.work is not None:
        _list_backward(t.work, grad, to_x, to_weight)
    return grad if node.edges[0] is not None else None, to_weight, to_x


def _list_backward(work: Work, grad: Tensor, to_x: Tensor | None, to_weight: Tensor | None) -> None:
    """Count the products of a linear layer's backward."""
    outputs = grad.shape[-1]
    rows = grad.numel // outputs
    if to_weight is not None:
        work.product(to_weight, outputs, to_weight.numel // outputs, rows, dtype=grad.dtype)
    if to_x is not None:
        work.product(to_x, rows, to_x.shape[-1], outputs, dtype=grad.dtype)


def saves_transposed(backward: Backward) -> bool:
    """Return whether this is a linear layer's backward: it saves its weight as a transposed view."""
    return backward in (_linear_backward, _biased_backward)


def linear(t: Tape, x: Tensor, weight: Tensor, bias: Tensor | None = None, *, transposed: bool = False) -> Tensor:
    """`F.linear`: the input is saved if the weight is trained, the weight if the input needs a gradient."""
    # C++ evaluates the arguments from last to first; the copies are freed before the arguments
    low_bias = None if bias is None else autocast_input(t, bias)
    low_weight = autocast_input(t, weight)
    low_x = autocast_input(t, x)
    out = t.new((*low_x.shape[:-1], low_weight.shape[1 if transposed else 0]), low_x.dtype)
    if t.work is not None:
        t.work.called(1)
        inner = low_x.shape[-1]
        t.work.product(out, low_x.numel // inner, out.shape[-1], inner, dtype=low_x.dtype)
    if low_bias is None:
        t.workspace()
        # what is saved has no name: a checkpoint may not keep it, and then the copy is freed before the argument
        t.record(
            out,
            _linear_backward,
            (low_x, low_weight),
            (low_weight if low_x.node is not None else None, low_x if low_weight.node is not None else None),
            (low_x.shape, low_weight.shape),
        )
    else:
        t.bias_workspace()
        inputs = (low_bias, low_weight, low_x)
        if t.grad_enabled and (low_x.node is not None or low_weight.node is not None or low_bias.node is not None):
            out.node = t.node(
                _biased_backward,
                inputs,
                (low_x if low_weight.node is not None else None, low_weight if low_x.node is not None else None),
            )
            out.node.extra = (low_x.shape, low_weight.shape)
            out.node.expected = tuple([(item.shape, item.dtype) for item in inputs])
        del inputs
    del low_x
    return out


def _batched_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    left_shape, right_shape = node.extra
    to_left = to_right = None
    if node.edges[1] is not None:
        to_right = t.new(right_shape, grad.dtype)
        t.workspace()
        to_right.view = to_right.heads_first = True
    if node.edges[0] is not None:
        to_left = t.new(left_shape, grad.dtype)
        t.workspace()
        to_left.view = to_left.heads_first = True
    if t.work is not None:
        stack, (inner, outer) = prod(left_shape[:-2]), right_shape[-2:]
        if to_right is not None:
            t.work.product(to_right, inner, outer, left_shape[-2], batch=stack, dtype=grad.dtype)
        if to_left is not None:
            t.work.product(to_left, left_shape[-2], inner, outer, batch=stack, dtype=grad.dtype)
    return to_left, to_right


def batched(t: Tape, left: Tensor, right: Tensor) -> Tensor:
    """`torch.matmul` of two stacks of matrices (…, n, k) and (…, k, m)."""
    low_right = autocast_input(t, right)
    low_left = autocast_input(t, left)
    # stacks with tokens first in memory cannot be folded into one batch dimension without a copy
    low_left = _foldable(t, low_left)
    low_right = _foldable(t, low_right)
    out = t.new((*low_left.shape[:-1], low_right.shape[-1]), low_left.dtype)
    if t.work is not None:
        stack, (rows, inner) = prod(low_left.shape[:-2]), low_left.shape[-2:]
        t.work.product(out, rows, low_right.shape[-1], inner, batch=stack, dtype=low_left.dtype)
    t.workspace()
    if t.grad_enabled and (low_left.node is not None or low_right.node is not None):
        saved = (low_right if low_left.node is not None else None, low_left if low_right.node is not None else None)
        out.node = t.node(_batched_backward, (low_left, low_right), saved)
        out.node.extra = (low_left.shape, low_right.shape)
    out.heads_first = True
    del low_left
    return _unfolded(t, out)


def _unfold_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    """Return the gradient in one batch dimension: a copy if tokens come first in memory."""
    if len(grad.shape) != 4 or grad.heads_first or grad.shape[0] == 1:
        return (grad,)
    out = t.new(grad.shape, grad.dtype)
    out.heads_first = True
    return (out,)


def _unfolded(t: Tape, x: Tensor) -> Tensor:
    if x.node is None or not t.grad_enabled:
        return x
    out = without_node(x)
    out.view = True
    out.node = t.node(_unfold_backward, (x,), ())
    return out


def _foldable(t: Tape, x: Tensor) -> Tensor:
    if len(x.shape) != 4 or x.heads_first or x.shape[0] == 1 or x.shape[1] == 1:
        return x
    copied = contiguous(t, x)
    copied.heads_first = True
    return copied


def add_product(t: Tape, result: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """`addmm(result, x, weight.T)`: a new tensor; the result's gradient is the incoming one."""
    low_weight = cast(t, weight, x.dtype)
    out = t.like(result)
    rows, inner = x.numel // x.shape[-1], x.shape[-1]
    if t.work is not None:
        t.work.product(out, rows, out.shape[-1], inner, dtype=x.dtype)
    t.workspace()
    if t.grad_enabled:
        out.node = t.node(_add_product_backward, (result, x, low_weight), (x, low_weight))
        out.node.extra = (x.shape, low_weight.shape)
    return out


def _add_product_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
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
