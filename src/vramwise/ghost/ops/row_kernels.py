"""Kernels over rows.

Softmax: computed in fp32 from a converted copy; its backward multiplies gradient and result first.

LayerNorm: the result and two fp32 numbers per row; its backward creates gradients of input, weight and bias.
"""

from __future__ import annotations

from vramwise.ghost.dtypes import FP32, INT64, DType
from vramwise.ghost.ops.elementwise import cast, without_node
from vramwise.ghost.tape import Grads, Node, Tape, Tensor


def _softmax_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    out = t.like(grad)
    product = t.like(grad)
    if t.work is not None:
        t.work.reads(out, grad, grad)
        t.work.reads(product, grad, grad)
    del product
    return (out,)


def softmax(t: Tape, x: Tensor, dtype: DType = FP32) -> Tensor:
    """`softmax(x, dim=-1, dtype=dtype)`: saves its result."""
    converted = cast(t, x, dtype)
    out = t.like(converted)
    t.record(out, _softmax_backward, (converted,), (without_node(out),))
    del converted
    return out


def _subtract_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    """Scatter the negated sum of each row into zeros at its maximum, and add the gradient."""
    negated = t.like(grad)
    summed = t.new((*grad.shape[:-1], 1), grad.dtype)
    del negated
    scattered = t.like(grad)
    del summed
    total = t.like(grad)
    del scattered
    return (total,)


def subtract_max(t: Tape, x: Tensor) -> Tensor:
    """`x - x.max(-1, keepdim=True).values`: keeps the positions of the maxima."""
    values = t.new((*x.shape[:-1], 1), x.dtype)
    indices = t.new((*x.shape[:-1], 1), INT64)
    out = t.like(x)
    del values
    t.record(out, _subtract_backward, (x,), (indices,))
    del indices
    return out


def _layer_norm_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    edges = node.edges
    x_shape, width = node.extra
    to_x = t.new(x_shape, grad.dtype) if edges[0] is not None else None
    to_weight = t.new(width, grad.dtype) if len(edges) > 1 and edges[1] is not None else None
    to_bias = t.new(width, grad.dtype) if len(edges) > 2 and edges[2] is not None else None
    return (to_x, to_weight, to_bias)[: len(edges)]


def layer_norm(t: Tape, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """`F.layer_norm` over the last dimension: saves the input, mean, rstd and the weight."""
    out = t.like(x)
    mean = t.new((*x.shape[:-1], 1), FP32)
    rstd = t.new((*x.shape[:-1], 1), FP32)
    if t.work is not None:
        t.work.no_kernel(mean, rstd)
    inputs = tuple([item for item in (x, weight, bias) if item is not None])
    t.record(out, _layer_norm_backward, inputs, (bias, x, mean, rstd, weight), (x.shape, x.shape[-1:]))
    del mean, rstd
    return out
