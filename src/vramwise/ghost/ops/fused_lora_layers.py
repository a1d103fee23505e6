"""Layers with LoRA as one autograd function each: a gated feed-forward layer; query, key and value; the output
projection.

The backward of the feed-forward layer's activation overwrites the saved gate and up, and the incoming gradient.
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
from vramwise.ghost.tape import Backward, Grads, Node, Tape, Tensor

Parts = tuple[Fused, Fused, Fused]


class _Context(NamedTuple):
    """What backward needs besides the saved tensors."""

    parts: tuple[Fused, ...]
    dropped: bool
    autocast: DType | None


def fused_mlp(t: Tape, x: Tensor, dropped: Tensor | None, parts: Parts) -> Tensor:
    """`down(act(gate(x)) * up(x))`; `dropped`: the input of gate's and up's branches after dropout, if any."""
    forward = _mlp_forward if parts[0].magnitude is None else _dora_mlp_forward
    out, saved = forward(t, without_node(x), dropped, parts)
    if t.grad_enabled:
        inputs = (x,) if dropped is None else (x, dropped)
        out.node = fused_node(t, _mlp_backward, inputs, parts, saved)
        out.node.extra = _Context(parts, dropped is not None, t.autocast)
    return out


def _mlp_forward(t: Tape, x: Tensor, dropped: Tensor | None, parts: Parts) -> tuple[Tensor, tuple[Tensor, ...]]:
    gate = product(t, x, parts[0])
    up = product(t, x, parts[1])
    hidden = t.like(gate)
    if t.work is not None:
        t.work.fused((hidden,), "triton", read=2 * gate.numel * gate.dtype.size)
    out = product(t, hidden, parts[2])
    return out, (x, _branch_input(x, dropped), gate, up, *copies(t, parts, x.dtype))


def _dora_mlp_forward(t: Tape, x: Tensor, dropped: Tensor | None, parts: Parts) -> tuple[Tensor, tuple[Tensor, ...]]:
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


def _mlp_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
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


def fused_projections(t: Tape, x: Tensor, dropped: Tensor | None, parts: tuple[Fused, ...]) -> list[Tensor]:
    """Return several projections of one input; `dropped`: the input of their branches after dropout, if any."""
    forward = _projections_forward if parts[0].magnitude is None else _dora_projections_forward
    outs, saved = forward(t, without_node(x), _branch_input(x, dropped), parts)
    if t.grad_enabled:
        node = _node(t, x, dropped, parts, _projections_backward, saved)
        for slot, out in enumerate(outs):
            out.node = node
            out.slot = slot
    return outs


def fused_output(t: Tape, x: Tensor, dropped: Tensor | None, part: Fused) -> Tensor:
    """Return the output projection."""
    forward = _output_forward if part.magnitude is None else _dora_output_forward
    out, saved = forward(t, without_node(x), _branch_input(x, dropped), part)
    if t.grad_enabled:
        out.node = _node(t, x, dropped, (part,), _output_backward, saved)
    return out


def _node(
    t: Tape,
    x: Tensor,
    dropped: Tensor | None,
    parts: tuple[Fused, ...],
    backward: Backward,
    saved: tuple[Tensor, ...],
) -> Node:
    inputs = (x,) if dropped is None else (x, dropped)
    node = fused_node(t, backward, inputs, parts, saved)
    node.extra = _Context(parts, dropped is not None, t.autocast)
    return node


def _branch_input(x: Tensor, dropped: Tensor | None) -> Tensor:
    return without_node(x if dropped is None else dropped)


Made = tuple[list[Tensor], tuple[Tensor, ...]]


def _projections_forward(t: Tape, x: Tensor, lora_input: Tensor, parts: tuple[Fused, ...]) -> Made:
    outs = [product(t, x, part) for part in parts]
    return outs, (x, lora_input, *copies(t, parts, x.dtype))


def _dora_projections_forward(t: Tape, x: Tensor, lora_input: Tensor, parts: tuple[Fused, ...]) -> Made:
    """Keep base and branch of each projection until all are computed; then add them again for backward."""
    outs, kept, factors = [], [], []
    for part in parts:
        base = base_product(t, x, part)
        lora = branch(t, lora_input, part)
        factors.append(magnitude_scale(t, part, x.dtype))
        outs.append(scaled_sum(t, base, lora, part))
        kept += [base, lora]
    del base, lora
    both = [t.like(base) for base in kept[::2]]
    return outs, (x, lora_input, *copies(t, parts, x.dtype), *factors, *both)


def _projections_backward(t: Tape, node: Node, grads: list[Tensor | None]) -> Grads:
    parts, has_dropout, autocast = node.extra
    x, lora_input, *rest = node.saved[::-1]
    rows, dtype = rows_of(x), x.dtype
    to_magnitudes: list[Tensor] = []
    scaled: list[Tensor] = []
    if parts[0].magnitude is not None:
        both = rest[-len(parts) :]
        to_magnitudes = [magnitude_grad(t, item, item, autocast=autocast is not None) for item in both]
        scaled = [t.like(item) for item in both]
        del both
    made = [factor_grads(t, part, rows, dtype) for part in parts]
    to_x = to_input(t, parts[0], x)
    for part in parts[1:]:
        opened(t, part)
        if t.work is not None:
            into_input(t.work, part, rows, dtype)
    inputs = (to_x, t.like(lora_input)) if has_dropout else (to_x,)
    del scaled, rest
    return (*inputs, *_in_order(made, to_magnitudes))


def _in_order(made: list[tuple[Tensor, Tensor, Tensor]], to_magnitudes: list[Tensor]) -> list[Tensor]:
    """Return the gradients of trained parameters, projection by projection."""
    found: list[Tensor] = []
    for position, (_, to_down, to_up) in enumerate(made):
        found += [to_down, to_up, *to_magnitudes[position : position + 1]]
    return found


def _output_forward(t: Tape, x: Tensor, lora_input: Tensor, part: Fused) -> tuple[Tensor, tuple[Tensor, ...]]:
    out = product(t, x, part)
    return out, (*copies(t, (part,), x.dtype), x, lora_input)


def _dora_output_forward(t: Tape, x: Tensor, lora_input: Tensor, part: Fused) -> tuple[Tensor, tuple[Tensor, ...]]:
    base = base_product(t, x, part)
    lora = branch(t, lora_input, part)
    factor = magnitude_scale(t, part, x.dtype)
    both = t.like(base)
    out = with_bias(t, t.like(both), part)
    saved = (*copies(t, (part,), x.dtype), x, lora_input, factor, both)
    del base, lora
    return out, saved


def _output_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    parts, has_dropout, autocast = node.extra
    part = parts[0]
    x, *rest = node.saved[::-1][2:]
    to_magnitudes: list[Tensor] = []
    if part.magnitude is not None:
        to_magnitudes.append(magnitude_grad(t, grad, rest[-1], autocast=autocast is not None))
        grad = t.like(grad)
    between, to_down, to_up = factor_grads(t, part, rows_of(x), x.dtype)
    to_x = to_input(t, part, x)
    inputs: tuple[Tensor, ...] = (to_x,)
    if has_dropout:
        plain = t.like(x)
        inputs = (to_x, t.like(plain))
        del plain
    del between, rest
    return (*inputs, to_down, to_up, *to_magnitudes)
