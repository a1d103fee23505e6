"""Products with quantised weights.

4-bit (bitsandbytes nf4, double quantisation): the weight is dequantised for each use, in forward and backward.
bitsandbytes 0.50 has a fused kernel for small inputs; from about 512 tokens on it dequantises and multiplies, which is
modelled here. Sizes: half a byte per element, an 8-bit scale per 64 elements, an fp32 scale per 256 of those.

8-bit (LLM.int8): inputs are quantised row by row, the product is int32, then fp16, then the input's dtype. Columns with
outliers (values of 6 and more) need a second product, in the input's dtype, and their copy is kept for backward.
"""

from __future__ import annotations

from functools import lru_cache
from math import erfc, exp, pi, prod, sqrt

from vramwise.ghost.dtypes import BOOL, FP16, FP32, INT8, INT32, INT64, DType
from vramwise.ghost.ops.elementwise import cast, without_node
from vramwise.ghost.ops.matmul import autocast_input
from vramwise.ghost.tape import Grads, Node, Parameter, Tape, Tensor

# LLM.int8: values from here on are outliers; transformers' initializer_range; integration steps and range for a
# distribution
_THRESHOLD, _INITIAL_DEVIATION = 6.0, 0.02
_SLICES, _REACH = 400, 9.0
# An assumption, not a measurement: the LLM.int8 paper (2208.07339) multiplies more than 99.9 % of the values of trained
# models in 8 bits, and a handful of columns is far below the rest. Gated products of current models were not examined.
TRAINED_OUTLIERS = 7
# LLM.int8 on the host: operators of bitsandbytes that call others; launches that find and zero outlier columns
_NESTED_OPS, _TO_FIND_COLUMNS, _TO_BLANK_COLUMNS = 5, 3, 2

BLOCK = 64
SCALE_BLOCK = 256


def scales(numel: int) -> int:
    """Return how many first-level scales a weight has."""
    return -(-numel // BLOCK)


def dequantised(
    t: Tape, shape: tuple[int, ...], dtype: DType, *, sums_in_place: bool = True, nested: bool = True
) -> Tensor:
    """Return the weight in the compute dtype, from its scales, which are freed on return."""
    if not nested:
        weight = t.new(shape, dtype)
        if t.work is not None:
            t.work.opened(weight, None, bits=4)
        return weight
    numel = prod(shape)
    absmax = t.new((scales(numel),), FP32)
    summed = absmax if sums_in_place else t.new((scales(numel),), FP32)
    weight = t.new(shape, dtype)
    if t.work is not None:
        t.work.opened(weight, absmax, bits=4)
    del summed, absmax
    return weight


def _backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    shape, x_shape, outer, compute, nested = node.extra
    weight = cast(t, dequantised(t, shape, compute, sums_in_place=True, nested=nested), grad.dtype)
    out = t.new(x_shape, grad.dtype)
    if t.work is not None:
        t.work.product(out, out.numel // shape[1], shape[1], shape[0], dtype=grad.dtype)
    t.workspace()
    del weight
    return (cast(t, out, outer),)  # autograd casts it if the input was wider


def linear_4bit(
    t: Tape, x: Tensor, shape: tuple[int, int], bias: Parameter | None, compute: DType, *, nested: bool = True
) -> Tensor:
    """`Linear4bit.forward`: the input is cast to the compute dtype, the result back to the input's.

    Autocast also casts the dequantised weight if the compute dtype is wider than its own.
    """
    if t.work is not None:
        t.work.function()
    outer = x.dtype
    x = cast(t, x, compute)
    count = scales(shape[0] * shape[1])
    absmax = t.new((count,), FP32) if nested else None
    summed = t.new((count,), FP32) if nested else None
    weight = t.new(shape, compute)
    low_weight = autocast_input(t, weight)
    low = autocast_input(t, x)
    out = t.new((*x.shape[:-1], shape[0]), low.dtype)
    if t.work is not None:
        t.work.opened(weight, absmax, bits=4)
        t.work.product(out, x.numel // shape[1], shape[0], shape[1], dtype=low.dtype)
    if bias is None:
        t.workspace()
    else:
        t.bias_workspace()
    del low, low_weight
    del summed, absmax, weight
    if t.grad_enabled and x.node is not None:
        backward = _backward if t.work is None else t.work.written_in_python(_backward)
        out.node = t.node(backward, (x,), ())
        out.node.extra = (shape, x.shape, x.dtype, compute, nested)
    return cast(t, out, outer)


def _backward_8bit(t: Tape, node: Node, grad: Tensor) -> Grads:
    shape, x_shape = node.extra
    weight = t.new(shape, grad.dtype)
    t.new((shape[0],), FP32)
    if t.work is not None:
        t.work.widened(weight, bits=8)
    out = t.new(x_shape, grad.dtype)
    if t.work is not None:
        t.work.product(out, out.numel // shape[1], shape[1], shape[0], dtype=grad.dtype)
    t.workspace()
    del weight
    return (out,)


def linear_8bit(t: Tape, x: Tensor, shape: tuple[int, int], outliers: int = 0, *, keeps: bool = True) -> Tensor:
    """`Linear8bitLt.forward`; its context keeps the input and a copy of its outlier columns as long as the graph.

    A compiled one keeps neither: the backward pass reads only the weight.
    """
    rows = x.numel // x.shape[-1]
    if t.work is not None:
        t.work.function()
        t.work.called(_NESTED_OPS)
        if x.dtype is not FP16:
            t.work.line()  # a warning, at every call, that inputs are cast to fp16
    packed, row_scales, columns = _quantised_rows(t, x, rows, outliers)
    loud = loud_weight = None
    if columns is not None:
        loud = t.new((rows, outliers), x.dtype)
        loud_weight = _columns_of_weight(t, (shape[0], outliers), x.dtype)
    whole = t.new((rows, shape[0]), INT32)
    if t.work is not None:
        t.work.product(whole, rows, shape[0], shape[1], dtype=INT8).by = "library"
    product = t.new((*x.shape[:-1], shape[0]), FP16)
    if t.work is not None:
        t.work.reads(product, whole)
        t.work.from_library(product)
    out = t.like(product, x.dtype) if x.dtype is not FP16 else product
    del product
    del whole
    if loud is not None:
        out = t.like(out)
        if t.work is not None:
            t.work.product(out, rows, shape[0], outliers, dtype=x.dtype)
        t.workspace()
    del loud_weight
    del packed, row_scales
    if t.grad_enabled and x.node is not None:
        backward = _backward_8bit if t.work is None else t.work.written_in_python(_backward_8bit)
        out.node = t.node(backward, (x,), ())
        out.node.extra = (shape, x.shape)
        if keeps:
            t.graph_holds.append((without_node(x), loud, columns))
    return out


def _quantised_rows(t: Tape, x: Tensor, rows: int, outliers: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """`int8_vectorwise_quant`: the input in 8 bits, a scale per row, and the indices of outlier columns."""
    half = t.like(x, FP16) if x.dtype is not FP16 else x
    row_scales = t.new((rows,), FP32)
    packed = t.like(x, INT8)
    absolute = t.like(x, FP16)
    flags = t.like(x, BOOL)
    del absolute
    found = t.new((), BOOL)
    if t.work is not None:
        t.work.no_kernel(row_scales)
        t.work.reads(packed, half)
        t.work.from_library(packed)
        t.work.reads(found, flags)
        t.work.sync()  # the host checks whether there are outliers
    columns = None
    if outliers:
        columns = t.new((outliers, 1), INT64)
        if t.work is not None:
            t.work.reads(columns, flags)
            t.work.asked(1, _TO_FIND_COLUMNS)  # the host reads how many there are
            t.work.stream(0, rows * outliers, "strided", count=_TO_BLANK_COLUMNS)
    del found, flags
    del half
    return packed, row_scales, columns


def _columns_of_weight(t: Tape, shape: tuple[int, int], dtype: DType) -> Tensor:
    """Return the weight's columns for the outliers, dequantised from 8 bits via fp32."""
    chosen = t.new(shape, INT8)
    scaled = t.new(shape, FP32)
    scaled = t.new(shape, FP32)
    del chosen
    return cast(t, scaled, dtype)


@lru_cache(maxsize=256)
def outlier_share(hidden: int, rows: int) -> float:
    """Return the share of columns of a gated product silu(g)·u in which some row reaches 6, LLM.int8's threshold.

    g and u are assumed to be distributed as for weights at their initial scale and a normed input.
    """
    deviation = _INITIAL_DEVIATION * sqrt(hidden)
    chance = 0.0
    for step in range(_SLICES):
        z = _REACH * ((2 * step + 1) / _SLICES - 1)
        gate = z * deviation
        factor = abs(gate / (1 + exp(-gate))) * deviation
        if factor:
            density = exp(-z * z / 2) / sqrt(2 * pi) * 2 * _REACH / _SLICES
            chance += density * erfc(_THRESHOLD / factor / sqrt(2))
    return float(1 - (1 - chance) ** rows)
