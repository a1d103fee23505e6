"""FSDP's units, seen from one rank: what is gathered, exchanged and kept, and when each of it goes.

Written after torch 2.13 (`torch/distributed/fsdp/_fully_shard`), where locals again decide when buffers go:

- A gather fills one flat buffer with the unit's weights, each rank's share padded to whole rows, and copies it out into
  the weights. The flat buffer goes at once in backward; in forward it stays until the next unit has copied out its own.
- Before a unit's backward the unit used before it is gathered ahead: its flat buffer lies beside this unit's weights.
- Gradients are whole until the unit's backward is done. Then they are copied into one flat buffer, which stays until
  the next unit's turn, and summed into the rank's share of them: a view into one buffer for the whole unit.
- While gradients accumulate nothing is exchanged: whole gradients of the whole model stay until the last micro-step.

FSDP 1 gathers into the flat buffer that its weights are views of, and has no copies. Autograd puts the gradients of a
unit together into a flat one while the weights are still there, at every micro-step, and adds it to the one before.

Buffers of gathers and sums belong to streams of their own and are reused by these alone. FSDP 2 orders its streams by
events, so it does not matter how far the host runs ahead of the device. FSDP 1 frees gathered weights only when another
stream is done with them: two gathers in flight may take one block more than is predicted here.

Parts of a model that are units tell their unit when forward and backward enter and leave them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from vramwise.ghost.dtypes import FP32, DType
from vramwise.ghost.model.attention import Tables
from vramwise.ghost.model.linear import Linear
from vramwise.ghost.model.norms import Norm
from vramwise.ghost.ops.elementwise import without_node
from vramwise.ghost.sharding import GATHER_STREAM, REDUCE_STREAM, REFERENCE_STREAM, Fsdp, Sharding, StreamStorage
from vramwise.ghost.tape import Grads, Node, Parameter, Storage, Tape, Tensor

Block = Callable[..., Tensor]


def padded_share(shape: tuple[int, ...], ranks: int) -> int:
    """Return the elements of a weight's share: whole rows, the same number on every rank."""
    return -(-shape[0] // ranks) * prod(shape[1:]) if shape else 1


class Units:
    """The units of a model, and the buffers that they share."""

    def __init__(self, sharding: Sharding) -> None:
        assert sharding.fsdp is not None
        self.ranks = sharding.ranks
        self.fsdp: Fsdp = sharding.fsdp
        self.on_host = sharding.host_weights
        self.all: list[Unit] = []
        self.by_label: dict[str, Unit] = {}
        # what a model's forward begins with, and what its backward does
        self.first: Unit | None = None
        self.last: Unit | None = None
        # what is left to the whole model: gathered when it is called, and kept
        self.rest: Unit | None = None
        # False while gradients accumulate
        self.exchanging = True
        self.flat: Storage | None = None
        self.reduced: Storage | None = None
        self.order: list[Unit] = []

    @property
    def repeats(self) -> bool:
        """Return whether a micro-step makes the same requests as the one before it, as it does without an exchange."""
        return not self.exchanging

    def make(self, label: str, sizes: list[int], held: list[Parameter]) -> Unit:
        """Return a new unit of these weights. `sizes`: the bytes of each when gathered, packed weights included."""
        unit = Unit(self, label, sizes, held)
        self.all.append(unit)
        self.by_label[label] = unit
        return unit

    def begin_forward(self, t: Tape) -> None:
        """Gather the units that the model's forward begins with."""
        if self.rest is not None:
            self.rest.gather(t, forward=True)
        if self.first is not None:
            self.first.gather(t, forward=True)

    def end_forward(self) -> None:
        """Free what the forward ends with, if the settings say so."""
        # a unit that forward begins and ends with; where the head's is another, its norm has told
        if self.last is not None and self.first is self.last:
            self.order.append(self.last)
            if self.fsdp.drops_root:
                self.last.drop()
        self.flat = None

    def begin_backward(self, t: Tape) -> None:
        """Begin the backward of the unit that belongs to the model itself."""
        if self.last is not None and self.fsdp.one_root:
            self.last.before_backward(t)

    def end_backward(self, t: Tape) -> None:
        """Finish the units that backward has not reached, because their inputs want no gradient."""
        for unit in self.all:
            unit.after_backward(t)
        self.flat = self.reduced = None
        for unit in self.all:
            unit.flat = unit.summed = None
        self.order.clear()

    def end_evaluation(self) -> None:
        """Free all gathered weights. torch keeps some until the next backward, but they are in use again before."""
        for unit in self.all:
            unit.drop()
        self.flat = None
        self.order.clear()


class Unit:
    """Weights that are gathered together."""

    __slots__ = (
        "cast_bytes",
        "flat",
        "following",
        "gathered",
        "joined",
        "label",
        "sizes",
        "summed",
        "trained",
        "units",
        "whole",
    )

    def __init__(self, units: Units, label: str, sizes: list[int], held: list[Parameter]) -> None:
        self.units = units
        self.label = label
        self.sizes = sizes
        # shares that are kept in another type than they are gathered in are cast first, frozen ones too
        self.cast_bytes = sum(p.local * p.dtype.size for p in held if p.dtype is not p.state_dtype)
        self.trained = [parameter for parameter in held if parameter.node is not None]
        self.gathered: list[Storage] = []
        self.flat: Storage | None = None
        # gradients of whole weights, by the weight's name
        self.whole: dict[str, Tensor] = {}
        self.joined: Storage | None = None
        self.summed: Storage | None = None
        # the unit whose backward follows at once: the embeddings, after the first block
        self.following: Unit | None = None
        for parameter in self.trained:
            assert parameter.node is not None
            parameter.node.backward = self._collect

    def gather(self, t: Tape, *, forward: bool) -> None:
        """Bring the weights together, if they are not."""
        if self.gathered or not self.sizes:
            return
        self.gather_ahead(t)
        units = self.units
        before = t.mark("weights", f"{self.label}: gathered weights")
        if units.fsdp.version == 1:
            assert self.flat is not None
            self.gathered = [self.flat]
        else:
            previous = units.flat if forward else None  # noqa: F841 - it goes when this one is copied out
            self.gathered = [Storage(t, nbytes) for nbytes in self.sizes]
            if t.work is not None:
                t.work.wait()
                t.work.stream(sum(self.sizes), sum(self.sizes))
            if forward:
                units.flat = self.flat
        self.flat = None
        t.tag = before

    def gather_ahead(self, t: Tape) -> None:
        """Gather the unit into its flat buffer, before it is needed."""
        if self.flat is not None or self.gathered or not self.sizes:
            return
        before = t.mark("weights", f"{self.label}: gathered weights")
        # what is cast for it, or comes from the host, is copied first
        copied = sum(self.sizes) // self.units.ranks if self.units.on_host else self.cast_bytes
        stream = REFERENCE_STREAM if self.units.fsdp.one_unit else GATHER_STREAM
        share = StreamStorage(t, copied, stream) if copied else None
        self.flat = StreamStorage(t, sum(self.sizes), stream)
        if t.work is not None:
            if self.units.on_host:
                t.work.copy(copied, to_host=False)
            t.work.collective("gather", sum(self.sizes))
        del share
        t.tag = before

    def drop(self) -> None:
        """Free the gathered weights."""
        self.gathered = []

    def leave_forward(self) -> None:
        """Note the end of the unit's forward, and free its weights if the settings say so."""
        self.units.order.append(self)
        if self.units.fsdp.drops_blocks:
            self.drop()

    def before_backward(self, t: Tape) -> None:
        """Gather the unit, and the next one of backward ahead."""
        self.gather(t, forward=False)
        if not self.units.fsdp.adapters_apart:
            self.gather_next_ahead(t)

    def gather_next_ahead(self, t: Tape) -> None:
        """Gather the unit ahead that comes next in backward: the one used before this one in forward."""
        order = self.units.order
        if self in order:
            position = order.index(self)
            if position:
                order[position - 1].gather_ahead(t)

    def after_backward(self, t: Tape) -> None:
        """Free the unit's weights, and exchange its gradients unless they accumulate."""
        if self.units.fsdp.adapters_apart and self.gathered:
            # the adapter matrix used first in forward, the last one in backward, gathers the block before
            self.gather_next_ahead(t)
        before = t.mark("gradients", f"{self.label}: exchanged gradients")
        if self.units.fsdp.version == 1:
            self._flatten(t)
        self.drop()
        if self.units.exchanging:
            self._exchange(t)
        t.tag = before

    def _flatten(self, t: Tape) -> None:
        """Join the gradients of views into that of the flat weight (FSDP 1)."""
        if self.whole:
            flat = Storage(t, sum(grad.numel * grad.dtype.size for grad in self.whole.values()))
            self.whole.clear()
            self.joined = self.joined or flat

    def _exchange(self, t: Tape) -> None:
        units = self.units
        two = units.fsdp.version == 2
        with_grads = [parameter for parameter in self.trained if not two or parameter.name in self.whole]
        if not with_grads or not (self.whole or self.joined):
            return
        wide, narrow = with_grads[0].state_dtype, with_grads[0].dtype
        elements = sum(parameter.local for parameter in with_grads)
        if two:
            units.reduced = None
        flat = self.joined or Storage(t, elements * units.ranks * narrow.size)
        # a loop's variable keeps the last of the whole gradients until all is done
        last = self.whole[with_grads[-1].name] if two else None  # noqa: F841
        self.whole.clear()
        self.joined = None
        summed = StreamStorage(t, elements * narrow.size, REDUCE_STREAM)
        if t.work is not None:
            t.work.stream(elements * units.ranks * narrow.size, elements * units.ranks * narrow.size)
            t.work.collective("reduce", elements * units.ranks * narrow.size)
            if units.on_host:
                t.work.copy(elements * wide.size, to_host=True)
        if two:
            units.reduced = flat
        kept = summed if wide is narrow else StreamStorage(t, elements * wide.size, REDUCE_STREAM)
        del flat
        if two and units.fsdp.replicated:
            # what is summed over groups stays until all of backward is done
            self.summed = summed
        del summed
        if not units.on_host:
            self._hand_out(kept, with_grads, wide)

    def _hand_out(self, kept: Storage, parameters: list[Parameter], dtype: DType) -> None:
        """Give each weight its share of the gradients: the first of a step is kept, later ones are added to it."""
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = Tensor(kept, (parameter.local,), parameter.local, dtype)

    def _collect(self, t: Tape, node: Node, grad: Tensor | None) -> Grads:
        """Take a gradient from autograd: the first is kept whole, later ones are added to it."""
        parameter: Parameter | None = node.extra()
        if parameter is None or grad is None or parameter.name in self.whole:
            if t.work is not None and parameter is not None and grad is not None:
                t.work.over(grad)
            return ()
        if grad.storage is not None:
            t.retag(grad.storage, "gradients", parameter.name)
        self.whole[parameter.name] = grad
        grad.holders += 1
        return ()


def gathered_dtype(fsdp: Fsdp, dtype: DType) -> DType:
    """Return the type that a weight of this type is computed in."""
    return fsdp.compute or dtype


def shard_dtype(fsdp: Fsdp, dtype: DType, *, trainable: bool) -> DType:
    """Return the type in which a rank keeps its share of a weight of this type."""
    return FP32 if fsdp.widens == "all" or (trainable and fsdp.widens == "trained") else dtype


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
    """Return what a unit works on: its gradient tells that the unit's backward is done."""
    if not t.grad_enabled or x.node is None:
        return x
    inner = without_node(x)
    inner.node = t.node(_after_backward, (x,), ())
    inner.node.extra = unit
    return inner


def _left(t: Tape, x: Tensor, unit: Unit) -> Tensor:
    """Return what a unit made: its gradient tells that the unit's backward begins."""
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
        """Return the hidden states after the block."""
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
        """Return the hidden states after the block."""
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
        """Return the layer's output."""
        return _left(t, super().__call__(t, x), self.unit)


class LoneHead(UnitHead):
    """A head that is a unit by itself: gathered where it is called, or whole for a loss that reads its weight."""

    __slots__ = ()

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
        self.unit.gather(t, forward=True)
        self.unit.units.order.append(self.unit)
        return super().__call__(t, _entered(t, x, self.unit))

    def full_tensor(self, t: Tape) -> Tensor:
        """Return the weight of all ranks, gathered outside of FSDP: nothing waits for it, and no unit's buffer goes."""
        before = t.mark("weights", "the head: gathered weights")
        whole = t.new(self.weight.shape, self.weight.dtype)
        if t.work is not None:
            t.work.collective("gather", whole.numel * whole.dtype.size)
        t.tag = before
        return whole
