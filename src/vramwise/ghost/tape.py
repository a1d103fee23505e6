"""The tape: tensors without values, autograd without arithmetic, and the list of allocations that results.

A ghost tensor has a shape, a type and a storage. A storage writes an ALLOC event when it is made and a FREE event when
its last variable goes: the models of this package have the variables and the call structure of the code they stand for,
so a storage is freed when the real one is. That is why functions here keep or drop local variables with care, and why
nothing may hold a tensor "for later". Nothing else may depend on the interpreter:

- no code asks for reference counts, which differ between releases of Python: who holds a gradient is counted
  (`Tensor.holders`);
- variables that go together, at a function's end, go in any order: `Tape.timeline` lists them in one.

The tape does not know any op: see `ops`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from vramwise.ghost.dtypes import DType
from vramwise.ghost.hardware import Hardware
from vramwise.ghost.tensors import (
    LEAF,
    Backward,
    Frame,
    Grads,
    Leaf,
    Node,
    Parameter,
    Storage,
    Tensor,
)
from vramwise.timeline import Action, Event, Phase, Repeat, Tag, Timeline

if TYPE_CHECKING:
    from vramwise.ghost.work import Work

__all__ = [
    "LEAF",
    "Backward",
    "Frame",
    "Grads",
    "Leaf",
    "Node",
    "Parameter",
    "Storage",
    "Tape",
    "Tensor",
]

_make = tuple.__new__
_FREE = int(Action.FREE)


class Tape:
    """A run under way: its events so far, the modes that ops look at, and the marks for phases and labels."""

    def __init__(self, hardware: Hardware) -> None:
        self.hardware = hardware
        self.events: list[Event] = []
        self.count = 0
        self.tag = 0
        self.tags: list[Tag] = []
        self.phases: list[Phase] = []
        self.repeats: list[Repeat] = []
        # positions where the events of another of the model's numbered parts begin
        self.cuts: list[int] = []
        # positions where steps and micro-steps begin and end
        self.bounds: list[int] = []
        self._part = ""
        self._parts: list[str] = []  # by tag
        self._tag_numbers: dict[tuple[str, str], int] = {}
        self._backward_tags: dict[int, int] = {}
        self.grad_enabled = True
        self.training = True
        # what autocast casts to, or None outside of it; its cache of weight copies lives as long as the outermost
        # context
        self.autocast: DType | None = None
        self.casts: dict[int, Tensor] = {}
        self.sequence = 0
        # torch runs backward on a thread of its own, which has its own matrix-multiplication workspace
        self.in_backward = False
        self.workspaces: dict[tuple[bool, str], Storage] = {}
        # what the graph's Python parts keep until the graph itself goes (arguments of checkpointed blocks)
        self.graph_holds: list[object] = []
        self.frame: Frame | None = None
        # backward runs within backward: how deep
        self.nested = 0
        # takes the inputs that checkpointing keeps, where those alone go elsewhere
        self.checkpoint_frame: Frame | None = None
        self.last_block_keeps = False  # its input, which others send elsewhere
        # tokens of the batch under way that are no padding, where that is known
        self.real_tokens: int | None = None
        # the inputs of all layers, where the model is asked to hand them out
        self.hidden_states: list[Tensor] | None = None
        self.without_dropout = False  # the trainer has set the rate of every dropout to zero
        self.labelled: int | None = None  # places of the batch with a label; None: all
        self.samples: int | None = None  # of the packed batch under way, where that is known
        # things that a library makes at first use and keeps
        self.once: dict[str, Storage] = {}
        # lists the kernels too, where somebody asks for them (`work`)
        self.work: Work | None = None
        self.mark("other", "")

    def mark(self, category: str, label: str) -> int:
        """Set what the following allocations are for. Return the previous mark, to be put back into `tag`."""
        before = self.tag
        key = (category, label)
        number = self._tag_numbers.get(key)
        if number is None:
            number = self._tag_numbers[key] = len(self.tags)
            self.tags.append(Tag(category, label))
            part = label.partition(":")[0]
            self._parts.append(part if part != label and part[-1:].isdigit() else "")
        self.tag = number
        if self._parts[number] not in ("", self._part):
            self._cut(number)
        return before

    def _cut(self, tag: int) -> None:
        """Note that what follows belongs to another part of the model."""
        self._part = self._parts[tag]
        self.cuts.append(len(self.events))

    def mark_backward(self, tag: int) -> None:
        """Set that the following allocations belong to the backward step of an op with this mark.

        Gradients of logits count as logits. A gradient's own gradient has the same mark.
        """
        number = self._backward_tags.get(tag)
        if number is None:
            category, label = self.tags[tag]
            kept = category if category == "logits" else "temporary"
            self.mark(kept, f"{label}: backward" if label else "backward")
            number = self._backward_tags[tag] = self._backward_tags[self.tag] = self.tag
        self.tag = number
        if self._parts[number] not in ("", self._part):
            self._cut(number)

    def retag(self, storage: Storage, category: str, label: str) -> None:
        """Change the mark of an existing block, such as a result that becomes a gradient."""
        before = self.mark(category, label)
        event = self.events[storage.event]
        self.events[storage.event] = _make(Event, (event[0], event[1], event[2], event[3], self.tag))
        self.tag = before

    def on_stream(self, tensor: Tensor, stream: int) -> None:
        """Move the request of a tensor to the pool of another stream."""
        assert tensor.storage is not None
        event = self.events[tensor.storage.event]
        self.events[tensor.storage.event] = _make(Event, (event[0], event[1], event[2], stream, event[4]))

    def phase(self, name: str, step: int) -> None:
        """Begin a phase of the run."""
        self.cuts += (len(self.events), len(self.events) + 1)
        self.events.append(_make(Event, (int(Action.PHASE), 0, 0, 0, len(self.phases))))
        self.phases.append(Phase(name, step))

    def empty_cache(self) -> None:
        """Write that the run hands cached memory back."""
        self.events.append(_make(Event, (int(Action.EMPTY_CACHE), 0, 0, 0, 0)))

    def reset_peaks(self) -> None:
        """Write that the trainer resets torch's peak figures."""
        self.events.append(_make(Event, (int(Action.RESET_PEAKS), 0, 0, 0, 0)))

    def bound(self) -> None:
        """Note that a step or micro-step begins or ends here."""
        self.bounds.append(len(self.events))

    def timeline(self) -> Timeline:
        """Return what was written so far.

        Storages that go without anything in between, such as a function's locals at its end, go in the order of their
        requests: interpreters differ in theirs, and an allocator is left the same.
        """
        events = self.events[:]
        bounds = {*self.cuts, *self.bounds}
        last = 0
        for place, (one, two) in enumerate(pairwise(self.events), 1):
            if two[0] == _FREE == one[0] and two[1] < one[1] and place >= last and place not in bounds:
                first, last = place - 1, place + 1
                while first not in bounds and events[first - 1][0] == _FREE:
                    first -= 1
                while last < len(events) and last not in bounds and events[last][0] == _FREE:
                    last += 1
                events[first:last] = sorted(events[first:last])
        return Timeline(events=events, tags=self.tags, phases=self.phases, repeats=self.repeats, cuts=self.cuts)

    def new(self, shape: tuple[int, ...], dtype: DType) -> Tensor:
        """Return a new tensor on the device."""
        numel = 1
        for side in shape:
            numel *= side
        return Tensor(Storage(self, numel * dtype.size) if numel else None, shape, numel, dtype)

    def like(self, tensor: Tensor, dtype: DType | None = None) -> Tensor:
        """Return a new tensor of the same shape and memory order."""
        kind = dtype or tensor.dtype
        out = Tensor(Storage(self, tensor.numel * kind.size), tensor.shape, tensor.numel, kind)
        out.heads_first = tensor.heads_first
        return out

    def scratch(self, nbytes: int) -> Storage | None:
        """Return a buffer of so many bytes; None for 0."""
        return Storage(self, nbytes) if nbytes else None

    def workspace(self) -> None:
        """Make the matrix library's workspace at a thread's first product; it is kept."""
        if (self.in_backward, "") not in self.workspaces:
            before = self.mark("workspace", "matrix multiplication workspace")
            self.workspaces[self.in_backward, ""] = Storage(self, self.hardware.matmul_workspace_bytes)
            self.tag = before

    def bias_workspace(self) -> None:
        """Make the smaller workspace of cuBLASLt, which products with a bias go through.

        torch asks for cuBLAS's handle first, which makes that workspace too.
        """
        self.workspace()
        key = (self.in_backward, "lt")
        if key not in self.workspaces:
            before = self.mark("workspace", "matrix multiplication workspace")
            self.workspaces[key] = Storage(self, 1024 * 1024)
            self.tag = before

    def record(
        self,
        out: Tensor,
        backward: Backward,
        inputs: tuple[Tensor, ...],
        saved: tuple[Tensor | None, ...] = (),
        extra: Any = None,
    ) -> Tensor:
        """Return an op's result, with its backward step if autograd records and an input wants a gradient."""
        if self.grad_enabled:
            for x in inputs:
                if x.node is not None:
                    out.node = node = self.node(backward, inputs, saved)
                    node.extra = extra
                    break
        return out

    def record_all(
        self,
        outs: Sequence[Tensor],
        backward: Backward,
        inputs: tuple[Tensor, ...],
        saved: tuple[Tensor | None, ...] = (),
        extra: Any = None,
    ) -> None:
        """Give all results of an op their one backward step, which gets a list of their gradients."""
        node = self.record(outs[0], backward, inputs, saved, extra).node
        for slot, out in enumerate(outs):
            out.node, out.slot = node, slot

    def node(self, backward: Backward, inputs: tuple[Tensor, ...], saved: tuple[Tensor | None, ...]) -> Node:
        """Return the backward step of an op on these inputs, at least one of which wants a gradient.

        `saved` is given in the order in which it is released, and kept the other way round: Python empties a tuple
        from its end.
        """
        node = Node(self.sequence, backward)
        node.tag = self.tag
        self.sequence += 1
        node.edges = [None if i.node is None else (i.node, i.slot) for i in inputs]
        if self.frame is not None and saved:
            node.frame = self.frame
            node.saved = self.frame.pack(saved[::-1], backward)
        else:
            node.saved = saved[::-1]
        return node
