"""Products with quantised weights.

4-bit: products with a 4-bit weight (bitsandbytes nf4, double quantisation): the weight is dequantised for each use,
both ways.

bitsandbytes 0.50 has a fused kernel for small inputs; from about 512 tokens on it dequantises and multiplies, which
is what
is modelled here. Sizes: half a byte an element, an 8-bit scale for 64 elements, an fp32 scale for 256 of those.

8-bit (LLM.int8): inputs are quantised row by row, the product is int32, then fp16, then the input's type. Outlier
columns
(values of 6 and more) take a second, small product that depends on the data and is left out.
"""

from __future__ import annotations

from math import prod

from vramwise.ghost.dtypes import BOOL, FP16, FP32, INT8, INT32, DType
from vramwise.ghost.ops.elementwise import cast, without_node
from vramwise.ghost.ops.matmul import autocast_input
from vramwise.ghost.tape import Grads, Node, Parameter, Tape, Tensor

BLOCK = 64
SCALE_BLOCK = 256


def scales(numel: int) -> int:
    """How many first-level scales a weight has."""
    return -(-numel // BLOCK)


def dequantised(t: Tape, shape: tuple[int, ...], dtype: DType, *, sums_in_place: bool = True) -> Tensor:
    """The weight in the compute type, from its scales; what is left of those goes with the caller's frame."""
    numel = prod(shape)
    absmax = t.new((scales(numel),), FP32)
    summed = absmax if sums_in_place else t.new((scales(numel),), FP32)
    weight = t.new(shape, dtype)
    del summed, absmax
    return weight


def _backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    shape, x_shape = node.extra
    weight = dequantised(t, shape, grad.dtype, sums_in_place=True)
    out = t.new(x_shape, grad.dtype)
    t.workspace()
    del weight
    return (out,)


def linear_4bit(t: Tape, x: Tensor, shape: tuple[int, int], bias: Parameter | None, compute: DType) -> Tensor:
    """`Linear4bit.forward`: the input in the compute type, the result back in the input's."""
    outer = x.dtype
    x = cast(t, x, compute)
    numel = shape[0] * shape[1]
    absmax = t.new((scales(numel),), FP32)
    summed = t.new((scales(numel),), FP32)
    weight = t.new(shape, compute)
    low = autocast_input(t, x)
    out = t.new((*x.shape[:-1], shape[0]), low.dtype)
    if bias is None:
        t.workspace()
    else:
        t.bias_workspace()
    del low
    del summed, absmax, weight
    if t.grad_enabled and x.node is not None:
        out.node = t.node(_backward, (x,), ())
        out.node.extra = (shape, x.shape)
    return cast(t, out, outer)


def _backward_8bit(t: Tape, node: Node, grad: Tensor) -> Grads:
    shape, x_shape = node.extra
    weight = t.new(shape, grad.dtype)
    t.new((shape[0],), FP32)
    out = t.new(x_shape, grad.dtype)
    t.workspace()
    del weight
    return (out,)


def linear_8bit(t: Tape, x: Tensor, shape: tuple[int, int]) -> Tensor:
    """`Linear8bitLt.forward`; its context keeps the input until the graph goes."""
    rows = x.numel // x.shape[-1]
    half = t.like(x, FP16) if x.dtype is not FP16 else x
    row_scales = t.new((rows,), FP32)
    packed = t.like(x, INT8)
    absolute = t.like(x, FP16)
    outliers = t.like(x, BOOL)
    del absolute
    t.new((), BOOL)
    del outliers
    del half
    whole = t.new((rows, shape[0]), INT32)
    product = t.new((*x.shape[:-1], shape[0]), FP16)
    out = t.like(product, x.dtype) if x.dtype is not FP16 else product
    del product
    del whole
    del packed, row_scales
    if t.grad_enabled and x.node is not None:
        out.node = t.node(_backward_8bit, (x,), (without_node(x),))
        out.node.extra = (shape, x.shape)
        if not t.in_backward:
            t.graph_holds.append(without_node(x))
    return out
