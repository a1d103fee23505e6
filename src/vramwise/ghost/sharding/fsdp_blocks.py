"""Parts of a model that are FSDP units: they tell their unit when forward and backward enter and leave them."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.ghost.model.attention import Tables
from vramwise.ghost.model.linear import Linear
from vramwise.ghost.model.norms import Norm
from vramwise.ghost.ops.elementwise import without_node
from vramwise.ghost.sharding.fsdp_units import Unit
from vramwise.ghost.tape import Grads, Node, Tape, Tensor

Block = Callable[..., Tensor]


def _before_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    node.extra.before_backward(t)
    return (grad,)


def _after_backward(t: Tape, node: Node, grad: Tensor) -> Grads:
    unit: Unit = node.extra
    unit.after_backward(t)
    if unit.following is not None:
        unit.following.gather(t, forward=False)
    return (grad,)


def _entered(t: Tape, x: Tensor, unit: Unit) -> Tensor:
    """What a unit works on: its gradient tells that the unit's backward is done."""
    if not t.grad_enabled or x.node is None:
        return x
    inner = without_node(x)
    inner.node = t.node(_after_backward, (x,), ())
    inner.node.extra = unit
    return inner


def _left(t: Tape, x: Tensor, unit: Unit) -> Tensor:
    """What a unit made: its gradient tells that the unit's backward begins."""
    if not t.grad_enabled or x.node is None:
        return x
    outer = without_node(x)
    outer.node = t.node(_before_backward, (x,), ())
    outer.node.extra = unit
    return outer


class UnitBlock:
    """A block that is a unit."""

    __slots__ = ("block", "unit")

    def __init__(self, block: Block, unit: Unit) -> None:
        self.block = block
        self.unit = unit

    def __call__(self, t: Tape, hidden: Tensor, *, tables: Tables | None, mask: Tensor | None) -> Tensor:
        """Run it."""
        unit = self.unit
        if unit.following is not None and not t.in_backward:
            unit.following.leave_forward()
        unit.gather(t, forward=True)
        hidden = _entered(t, hidden, unit)
        out = self.block(t, hidden, tables=tables, mask=mask)
        # a block that is recomputed keeps its weights for the backward that follows
        if t.in_backward:
            # a block that runs again by itself is a forward of its own: the flat buffer goes at its end
            unit.units.flat = None
        else:
            unit.leave_forward()
        return _left(t, out, unit)


class UnitNorm:
    """The last norm, which is a unit with the head: gathered here, and kept from here on until its backward."""

    __slots__ = ("norm", "unit")

    def __init__(self, norm: Norm, unit: Unit) -> None:
        self.norm = norm
        self.unit = unit

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Run it."""
        self.unit.gather(t, forward=True)
        self.unit.units.order.append(self.unit)
        return self.norm(t, _entered(t, x, self.unit))


class UnitHead(Linear):
    """The head of that unit: its backward begins with the gradient of the logits, not with that of the loss."""

    __slots__ = ("unit",)

    def __init__(self, head: Linear, unit: Unit) -> None:
        super().__init__(head.weight, head.bias)
        self.unit = unit

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Apply it."""
        return _left(t, super().__call__(t, x), self.unit)


class LoneHead(UnitHead):
    """A head that is a unit by itself: gathered where it is called, or whole for a loss that reads its weight."""

    __slots__ = ()

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Apply it."""
        self.unit.gather(t, forward=True)
        self.unit.units.order.append(self.unit)
        return super().__call__(t, _entered(t, x, self.unit))

    def full_tensor(self, t: Tape) -> Tensor:
        """The weight of all ranks, gathered outside of FSDP: nothing waits for it, and no unit's buffer goes."""
        before = t.mark("weights", "the head: gathered weights")
        whole = t.new(self.weight.shape, self.weight.dtype)
        if t.work is not None:
            t.work.collective("gather", whole.numel * whole.dtype.size)
        t.tag = before
        return whole
