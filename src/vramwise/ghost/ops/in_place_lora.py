"""LoRA kernels that overwrite what they saved with gradients: the feed-forward layer, query/key/value, one projection.

Follows Unsloth's `kernels/fast_lora.py` (2026.10.9). Forward keeps the input and the factors as they are; 4-bit weights
are dequantised into one persistent buffer (`scratch`). Backward copies the factors to the input's dtype, dequantises
weights into separate memory (except the down projection's), and writes the input's gradient over the saved input.
Dropout has a mask for each projection, and dequantises every weight into separate memory.

Compiled with their layer (torch 2.11 and later, padded rows), there is no persistent buffer, and the activation's
backward writes three new tensors in addition to the three that it reads: seen in the allocations of two runs on an
H200.
"""

from __future__ import annotations

from vramwise.ghost.dtypes import BOOL, DType
from vramwise.ghost.ops.elementwise import without_node
from vramwise.ghost.ops.fused_lora import Fused, copies, factor_grads, fused_node, into_input, low, rows_of
from vramwise.ghost.ops.shape import alias
from vramwise.ghost.tape import Grads, Node, Storage, Tape, Tensor

# The tape's name for the buffer of dequantised weights.
SCRATCH = "opened weights"


def make_scratch(t: Tape, nbytes: int) -> None:
    """Allocate the buffer for the largest weight, in the first forward pass; it is kept."""
    if nbytes and SCRATCH not in t.once:
        before = t.mark("workspace", "opened 4-bit weights")
        t.once[SCRATCH] = Storage(t, nbytes)
        t.tag = before


def _opened(t: Tape, part: Fused, *, scratch: bool) -> Tensor | None:
    """Return the base weight: itself, or dequantised by one kernel without extra memory. None: in the kept buffer."""
    if part.weight is not None:
        return part.weight
    numel = part.shape[0] * part.shape[1]
    if scratch and SCRATCH in t.once:
        if t.work is not None:
            t.work.stream(numel / 2, numel * part.compute.size, "dequantise").by = "triton"
        return None
    weight = t.new(part.shape, part.compute)
    if t.work is not None:
        t.work.opened(weight, None, bits=4)
    return weight


def _dropped(t: Tape, x: Tensor, rate: float) -> tuple[Tensor, Tensor | None]:
    """Return the branch's input and its mask; the input itself without dropout."""
    if not rate or not t.training:
        return x, None
    mask = t.new(x.shape, BOOL)
    return t.like(x), mask


def _product(t: Tape, x: Tensor, part: Fused, rate: float) -> Tensor:
    """`x @ W.T` with the branch added in place."""
    weight = _opened(t, part, scratch=not rate)
    out = t.new((*x.shape[:-1], part.shape[0]), x.dtype)
    t.workspace()
    del weight
    down = low(t, part.down, x.dtype)
    between = t.new((rows_of(x), part.rank), x.dtype)
    up = low(t, part.up, x.dtype)
    if t.work is not None:
        t.work.product(out, rows_of(x), *part.shape, dtype=x.dtype)
        t.work.product(between, rows_of(x), part.rank, part.shape[1], dtype=x.dtype)
        t.work.product(None, rows_of(x), part.shape[0], part.rank, dtype=x.dtype)
    del between, up, down
    return out


def _projected(t: Tape, x: Tensor, parts: tuple[Fused, ...], rate: float) -> tuple[list[Tensor], list[Tensor | None]]:
    """Return projections of one input and their masks; a dropped input is freed only once the next one exists."""
    outs: list[Tensor] = []
    masks: list[Tensor | None] = []
    dropped = None
    for part in parts:
        dropped, mask = _dropped(t, x, rate)
        outs.append(_product(t, x, part, rate))
        masks.append(mask)
    del dropped
    return outs, masks


def in_place_mlp(t: Tape, x: Tensor, parts: tuple[Fused, Fused, Fused], rate: float, *, traced: bool = False) -> Tensor:
    """`down(act(gate(x)) * up(x))`; `traced`: compiled, so its backward overwrites nothing."""
    kept = without_node(x)
    (gate, up), (gate_mask, up_mask) = _projected(t, kept, parts[:2], rate)
    hidden = t.like(gate)
    if t.work is not None:
        t.work.fused((hidden,), "triton", read=2 * gate.numel * gate.dtype.size)
    (out,), (down_mask,) = _projected(t, hidden, parts[2:], rate)
    if t.grad_enabled:
        out.node = fused_node(t, _mlp_backward, (x,), parts, (kept, gate, up, gate_mask, up_mask, down_mask))
        out.node.extra = (parts, rate, traced)
    del hidden
    return out


def _mlp_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    parts, rate, traced = node.extra
    x, gate, up, *masks = node.saved[::-1]
    rows, dtype = rows_of(x), x.dtype
    copied = copies(t, parts, dtype)
    weight = _opened(t, parts[2], scratch=not rate)
    hidden = t.like(gate)  # the gradient, overwritten by the activation's output
    t.workspace()
    del weight
    _through_branch(t, parts[2], rows, dtype, masks[2], gate)
    if t.work is not None:
        into_input(t.work, parts[2], rows, dtype, hidden)
        t.work.fused((), "triton", read=3 * gate.numel * gate.dtype.size, over=(hidden, gate, up))
    written = [t.like(gate) for _ in range(3)] if traced else []  # the activation's output, both gradients
    hidden = written[0] if written else hidden
    replayed = _replayed(t, masks[2], hidden)  # kept beside it until the end
    down_grads = factor_grads(t, parts[2], rows, dtype)
    up_grads, gate_grads = _grads_of_factors(t, (parts[1], parts[0]), rows, dtype, [masks[1], masks[0]], x)
    to_x = None
    if node.edges[0] is not None:
        to_x = _over_input(t, (parts[1], parts[0]), x, (masks[1], masks[0]))
    del hidden, replayed, copied, written
    return (to_x, *gate_grads[1:], *up_grads[1:], *down_grads[1:])


def in_place_projections(t: Tape, x: Tensor, parts: tuple[Fused, ...], rate: float) -> list[Tensor]:
    """Return several projections of one input."""
    kept = without_node(x)
    outs, masks = _projected(t, kept, parts, rate)
    if t.grad_enabled:
        node = fused_node(t, _projections_backward, (x,), parts, (kept, *masks))
        node.extra = (parts, True)
        for slot, out in enumerate(outs):
            out.node, out.slot = node, slot
    return outs


def in_place_output(t: Tape, x: Tensor, part: Fused, rate: float) -> Tensor:
    """Return one projection of its own input; its gradient is a new tensor, as other ops saved that input, too."""
    kept = without_node(x)
    (out,), (mask,) = _projected(t, kept, (part,), rate)
    if t.grad_enabled:
        out.node = fused_node(t, _projections_backward, (x,), (part,), (kept, mask))
        out.node.extra = ((part,), False)
    return out


def _projections_backward(t: Tape, node: Node, grads: Tensor | list[Tensor | None]) -> Grads:
    parts, over = node.extra
    x, *masks = node.saved[::-1]
    rows, dtype = rows_of(x), x.dtype
    copied = copies(t, parts, dtype)
    made = _grads_of_factors(t, parts, rows, dtype, masks, x)
    to_x = None
    if node.edges[0] is not None:
        to_x = _over_input(t, parts, x, tuple(masks), over=over)
    del copied
    return (to_x, *(grad for grads in made for grad in grads[1:]))


def _through_branch(t: Tape, part: Fused, rows: int, dtype: DType, mask: Tensor | None, like: Tensor) -> None:
    """Add the branch's part of a gradient in place; with a mask it is a separate tensor."""
    between = t.new((rows, part.rank), dtype)
    if mask is not None:
        product = t.like(like)
        replayed = t.like(like)
        del product, replayed
    del between


def _replayed(t: Tape, mask: Tensor | None, x: Tensor) -> Tensor | None:
    """Return the input with dropout applied again; None without a mask."""
    return None if mask is None else t.like(x)


def _grads_of_factors(
    t: Tape, parts: tuple[Fused, ...], rows: int, dtype: DType, masks: list[Tensor | None], x: Tensor
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return `grad @ B` and both factors' gradients; a replayed input is freed once the next one exists."""
    made = []
    replayed = None
    for part, mask in zip(parts, masks, strict=True):
        replayed = _replayed(t, mask, x)
        made.append(factor_grads(t, part, rows, dtype))
    del replayed
    return made


def _over_input(
    t: Tape, parts: tuple[Fused, ...], x: Tensor, masks: tuple[Tensor | None, ...], *, over: bool = True
) -> Tensor:
    """Return the input's gradient, through one projection after the other: over the input, or in a new tensor."""
    out: Tensor | None = None
    for part, mask in zip(parts, masks, strict=True):
        weight = _opened(t, part, scratch=False)
        made = out is None
        if out is None:
            out = alias(x, x.shape) if over else t.like(x)
            t.workspace()
        if t.work is not None:
            into_input(t.work, part, rows_of(x), x.dtype, out if made and not over else None)
        del weight
        if mask is not None:
            product = t.like(x)
            replayed = t.like(x)
            del product, replayed
    assert out is not None
    out.view = True  # it is passed on as a view
    return out
