"""Attention projections with LoRA as autograd functions: query, key and value in one, and the output."""

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
from vramwise.ghost.tape import Backward, Grads, Node, Tape, Tensor


class _Context(NamedTuple):
    """What backward needs besides the saved tensors."""

    parts: tuple[Fused, ...]
    dropped: bool
    autocast: DType | None


def fused_projections(t: Tape, x: Tensor, dropped: Tensor | None, parts: tuple[Fused, ...]) -> list[Tensor]:
    """Return several projections of one input; `dropped`: the input of their branches after dropout, if any."""
    forward = _forward if parts[0].magnitude is None else _dora_forward
    outs, saved = forward(t, without_node(x), _branch_input(x, dropped), parts)
    if t.grad_enabled:
        node = _node(t, x, dropped, parts, _backward, saved)
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


def _forward(t: Tape, x: Tensor, lora_input: Tensor, parts: tuple[Fused, ...]) -> Made:
    outs = [product(t, x, part) for part in parts]
    return outs, (x, lora_input, *copies(t, parts, x.dtype))


def _dora_forward(t: Tape, x: Tensor, lora_input: Tensor, parts: tuple[Fused, ...]) -> Made:
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


def _backward(t: Tape, node: Node, grads: list[Tensor | None]) -> Grads:
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
