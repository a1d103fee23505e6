"""A gated feed-forward layer with LoRA as one autograd function: gate, up, activation and down projection.

The activation's backward overwrites the saved gate and up, and the incoming gradient.
"""

from __future__ import annotations

from typing import NamedTuple

from vramwise.ghost.dtypes import DType
from vramwise.ghost.ops.elementwise import without_node
from vramwise.ghost.ops.fused_lora import (
    Fused,
    base_product,
    branch,
    copies,
    factor_grads,
    fused_node,
    into_input,
    magnitude_grad,
    magnitude_scale,
    opened,
    product,
    rows_of,
    scaled_sum,
    to_input,
    with_bias,
)
from vramwise.ghost.ops.shape import alias
from vramwise.ghost.tape import Grads, Node, Tape, Tensor

Parts = tuple[Fused, Fused, Fused]


class _Context(NamedTuple):
    """What backward needs besides the saved tensors."""

    parts: Parts
    dropped: bool
    autocast: DType | None


def fused_mlp(t: Tape, x: Tensor, dropped: Tensor | None, parts: Parts) -> Tensor:
    """`down(act(gate(x)) * up(x))`; `dropped`: the input of gate's and up's branches after dropout, if any."""
    forward = _forward if parts[0].magnitude is None else _dora_forward
    out, saved = forward(t, without_node(x), dropped, parts)
    if t.grad_enabled:
        inputs = (x,) if dropped is None else (x, dropped)
        out.node = fused_node(t, _backward, inputs, parts, saved)
        out.node.extra = _Context(parts, dropped is not None, t.autocast)
    return out


def _forward(t: Tape, x: Tensor, dropped: Tensor | None, parts: Parts) -> tuple[Tensor, tuple[Tensor, ...]]:
    gate = product(t, x, parts[0])
    up = product(t, x, parts[1])
    hidden = t.like(gate)
    if t.work is not None:
        t.work.fused((hidden,), "triton", read=2 * gate.numel * gate.dtype.size)
    out = product(t, hidden, parts[2])
    return out, (x, _branch_input(x, dropped), gate, up, *copies(t, parts, x.dtype))


def _dora_forward(t: Tape, x: Tensor, dropped: Tensor | None, parts: Parts) -> tuple[Tensor, tuple[Tensor, ...]]:
    lora_input = _branch_input(x, dropped)
    gate_base = base_product(t, x, parts[0])
    gate_lora = branch(t, lora_input, parts[0])
    gate_scale = magnitude_scale(t, parts[0], x.dtype)
    gate = scaled_sum(t, gate_base, gate_lora, parts[0])
    up_base = base_product(t, x, parts[1])
    up_lora = branch(t, lora_input, parts[1])
    up_scale = magnitude_scale(t, parts[1], x.dtype)
    up = scaled_sum(t, up_base, up_lora, parts[1])
    gate_both, up_both = t.like(gate), t.like(up)
    hidden = t.like(gate)
    down_base = base_product(t, hidden, parts[2])
    down_lora = branch(t, hidden, parts[2])
    down_scale = magnitude_scale(t, parts[2], x.dtype)
    down_both = t.like(down_base)
    out = with_bias(t, t.like(down_both), parts[2])
    saved = (x, lora_input, gate, up, *copies(t, parts, x.dtype))
    saved = (*saved, gate_scale, up_scale, down_scale, gate_both, up_both, down_both)
    del gate_base, gate_lora, up_base, up_lora, hidden, down_base, down_lora
    return out, saved


def _branch_input(x: Tensor, dropped: Tensor | None) -> Tensor:
    return x if dropped is None else without_node(dropped)


def _backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    parts, has_dropout, autocast = node.extra
    x, lora_input, gate, up, *rest = node.saved[::-1]
    both = rest[-3:] if parts[0].magnitude is not None else None
    rows, dtype = rows_of(x), x.dtype
    to_magnitudes: list[Tensor] = []
    if both is not None:
        to_magnitudes.append(magnitude_grad(t, grad, both[2], autocast=autocast is not None))
        grad = t.like(grad)
    hidden = to_input(t, parts[2], gate)  # overwritten by the activation's output
    t.new((rows, parts[2].rank), dtype)
    if t.work is not None:
        t.work.fused((), "triton", read=3 * gate.numel * gate.dtype.size, over=(hidden, gate, up))
    to_gate, to_up = alias(gate, gate.shape), alias(up, up.shape)
    if both is not None:
        to_magnitudes.append(magnitude_grad(t, to_gate, both[0], autocast=autocast is not None))
        to_magnitudes.append(magnitude_grad(t, to_up, both[1], autocast=autocast is not None))
        to_gate = t.like(gate)
        to_up = t.like(up)
    down_grads = factor_grads(t, parts[2], rows, dtype)
    up_grads = factor_grads(t, parts[1], rows, dtype)
    gate_grads = factor_grads(t, parts[0], rows, dtype)
    inputs: tuple[Tensor | None, ...] = (None,)
    if node.edges[0] is not None:
        inputs = (_input_grad(t, parts, x),)
    if has_dropout:
        inputs = (*inputs, t.like(lora_input) if node.edges[0] is not None else None)
    factors = [list(grads[1:]) for grads in (gate_grads, up_grads, down_grads)]
    if to_magnitudes:
        for own, to_magnitude in zip(factors, (*to_magnitudes[1:], to_magnitudes[0]), strict=True):
            own.append(to_magnitude)
    del hidden, to_gate, to_up
    return (*inputs, *factors[0], *factors[1], *factors[2])


def _input_grad(t: Tape, parts: Parts, x: Tensor) -> Tensor:
    """Return the input's gradient: through up, then through gate, added in place."""
    out = to_input(t, parts[1], x)
    opened(t, parts[0])
    if t.work is not None:
        into_input(t.work, parts[0], rows_of(x), x.dtype)
    return out
