"""torchao's fp8 linear layer, uncompiled: every operand is cast by itself (torchao 0.18, `float8_linear.py`).

Input and weight are kept in 16 bits, and both are cast again in the backward pass. A cast takes two fp32 copies besides
its result. Products take a row-major and a column-major operand: the others are copied.
"""

from __future__ import annotations

from vramwise.ghost.dtypes import BF16, FP8, FP32, FP64
from vramwise.ghost.ops.elementwise import without_node
from vramwise.ghost.ops.matmul import autocast_input
from vramwise.ghost.tape import Grads, Node, Parameter, Tape, Tensor


def to_float8(t: Tape, x: Tensor, rows: int = 0) -> tuple[Tensor, Tensor]:
    """Cast a tensor, and return it with its scale. `rows`: so many numbers share the scales; 0: there is one."""
    count = (rows,) if rows else ()
    absolute = t.like(x)
    largest = t.new(count, x.dtype)
    del absolute
    wide = t.new(count, FP64)
    clamped = t.new(count, FP64)
    ratio = t.new(count, FP64)
    del clamped
    factor = t.new(count, FP32)
    del ratio, wide, largest
    wide = t.like(x, FP32)
    scaled = t.like(x, FP32)
    del wide
    held = t.like(x, FP32)
    out = t.like(x, FP8)
    del held, scaled
    return out, factor


def _product(
    t: Tape, shape: tuple[int, ...], left: Tensor, right: Tensor, inner: int, turned: tuple[bool, bool]
) -> Tensor:
    """`_scaled_mm`. `turned`: which operands are copied into the other order first."""
    copies = [t.like(one) for one, copied in zip((left, right), turned, strict=True) if copied]
    scales = t.new((), FP32), t.new((), FP32)
    t.bias_workspace()
    columns = shape[-1]
    out = t.new(shape, BF16)
    if t.work is not None:
        t.work.product(out, out.numel // columns, columns, inner, dtype=FP8)
    del copies, scales
    return out


def _backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    x, weight = node.saved[::-1]
    outputs, inputs = weight.shape
    by_row, wide = node.extra
    rows = grad.numel // outputs
    low = [to_float8(t, grad, rows if by_row else 0), to_float8(t, weight, inputs if by_row and not wide else 0)]
    to_x = _product(t, x.shape, low[0][0], low[1][0], outputs, (False, True))
    to_x.view = len(x.shape) > 2
    to_weight = None
    if wide:
        to_weight = t.new(weight.shape, grad.dtype)
        t.workspace()
        if t.work is not None:
            t.work.product(to_weight, outputs, inputs, rows, dtype=grad.dtype)
    elif node.edges[1] is not None:
        low += [to_float8(t, grad, outputs if by_row else 0), to_float8(t, x, inputs if by_row else 0)]
        to_weight = _product(t, weight.shape, low[2][0], low[3][0], rows, (True, True))
    if to_weight is not None:
        to_weight.view = True
    return to_x if node.edges[0] is not None else None, to_weight


def float8_linear(t: Tape, x: Tensor, weight: Parameter, scaling: str) -> Tensor:
    """Apply a linear layer that multiplies in fp8. `scaling`: torchao's recipe."""
    x = autocast_input(t, x)
    by_row = scaling != "tensorwise"
    outputs, inputs = weight.shape
    low = to_float8(t, x, x.numel // inputs if by_row else 0), to_float8(t, weight, outputs if by_row else 0)
    out = _product(t, (*x.shape[:-1], outputs), low[0][0], low[1][0], inputs, (False, False))
    if t.grad_enabled and (x.node is not None or weight.node is not None):
        out.node = t.node(_backward, (x, weight), (without_node(x), weight))
        out.node.extra = by_row, scaling == "rowwise_with_gw_hp"
    return out
