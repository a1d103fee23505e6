"""The tape: tensors without values, autograd without arithmetic, and the list of allocations that results.

A ghost tensor has a shape, a type and a storage. A storage writes an ALLOC event when it is made and a FREE event when
its last reference goes. *Whose* references those are is Python's own business: the models of this package are written
with the variables and call structure of the code they stand for, so CPython's reference counts free each storage at the
moment the real one is freed. That is why functions here keep or drop locals with care, and why nothing may hold a
tensor "for later".

The tape does not know any op: see `ops`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    """One run being written down: the events so far, the modes that ops look at, and the marks for phases and
    labels."""

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
        """Say what the following allocations are for. Returns the previous mark, to be put back into `tag`."""
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
        """What follows belongs to another part of the model."""
        self._part = self._parts[tag]
        self.cuts.append(len(self.events))

    def mark_backward(self, tag: int) -> None:
        """The following allocations belong to the backward step of an op with that mark; logits' gradients are logits.

        The mark made so stands for itself: a gradient's gradient has no other name.
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
        """Change what an existing block is for (a result that turned out to be a gradient)."""
        before = self.mark(category, label)
        event = self.events[storage.event]
        self.events[storage.event] = _make(Event, (event[0], event[1], event[2], event[3], self.tag))
        self.tag = before

    def on_stream(self, tensor: Tensor, stream: int) -> None:
        """The tensor just made lies in another stream's pool."""
        assert tensor.storage is not None
        event = self.events[tensor.storage.event]
        self.events[tensor.storage.event] = _make(Event, (event[0], event[1], event[2], stream, event[4]))

    def phase(self, name: str, step: int) -> None:
        """The run enters a phase."""
        self.cuts += (len(self.events), len(self.events) + 1)
        self.events.append(_make(Event, (int(Action.PHASE), 0, 0, 0, len(self.phases))))
        self.phases.append(Phase(name, step))

    def empty_cache(self) -> None:
        """The run hands cached memory back."""
        self.events.append(_make(Event, (int(Action.EMPTY_CACHE), 0, 0, 0, 0)))

    def reset_peaks(self) -> None:
        """The trainer resets torch's peak figures."""
        self.events.append(_make(Event, (int(Action.RESET_PEAKS), 0, 0, 0, 0)))

    def timeline(self) -> Timeline:
        """Return what was written so far.

        Storages that go without anything in between, such as a function's locals at its end, go in the order of their
        requests: interpreters differ in theirs, and an allocator is left the same.
        """
        events = self.events[:]
        bounds = {*self.cuts, len(events)}
        for repeat in self.repeats:
            bounds |= _bounds(repeat)
        first = -1  # of the frees under way
        for place, (action, *_) in enumerate(self.events):
            if first >= 0 and (action != _FREE or place in bounds):
                if place - first > 1:
                    events[first:place] = sorted(events[first:place])
                first = -1
            if action == _FREE and first < 0:
                first = place
        if first >= 0:
            events[first:] = sorted(events[first:])
        return Timeline(events=events, tags=self.tags, phases=self.phases, repeats=self.repeats, cuts=self.cuts)

    def new(self, shape: tuple[int, ...], dtype: DType) -> Tensor:
        """A new tensor on the device."""
        numel = 1
        for side in shape:
            numel *= side
        return Tensor(Storage(self, numel * dtype.size) if numel else None, shape, numel, dtype)

    def like(self, tensor: Tensor, dtype: DType | None = None) -> Tensor:
        """A new tensor of the same shape and memory order."""
        kind = dtype or tensor.dtype
        out = Tensor(Storage(self, tensor.numel * kind.size), tensor.shape, tensor.numel, kind)
        out.heads_first = tensor.heads_first
        return out

    def scratch(self, nbytes: int) -> Storage | None:
        """A temporary buffer of that many bytes."""
        return Storage(self, nbytes) if nbytes else None

    def workspace(self) -> None:
        """The matrix library's workspace: one for each thread that multiplies, made at its first product and kept."""
        if (self.in_backward, "") not in self.workspaces:
            before = self.mark("workspace", "matrix multiplication workspace")
            self.workspaces[self.in_backward, ""] = Storage(self, self.hardware.matmul_workspace_bytes)
            self.tag = before

    def bias_workspace(self) -> None:
        """Products with a bias go through cuBLASLt, whose workspace is another, smaller one.

        torch takes cuBLAS's handle for it, which brings its own workspace with it first.
        """
        self.workspace()
        key = (self.in_backward, "lt")
        if key not in self.workspaces:
            before = self.mark("workspace", "matrix multiplication workspace")
            self.workspaces[key] = Storage(self, 1024 * 1024)
            self.tag = before

    def node(self, backward: Backward, inputs: tuple[Tensor, ...], saved: tuple[Tensor | None, ...]) -> Node:
        """The backward step of an op on these inputs, at least one of which wants a gradient.

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


def _bounds(repeat: Repeat) -> set[int]:
    """Return where a repeat and those within it begin and end."""
    return {repeat.start, repeat.end}.union(*map(_bounds, repeat.inner))
