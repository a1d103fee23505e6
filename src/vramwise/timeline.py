"""The nouns of memory: what a run allocates and frees, in order, and what came of it.

A *measured* snapshot and a *predicted* run are both a `Timeline`, so prediction, replay, diagnosis and charts share
one path. Three numbers, always named: *allocated* (tensors), *reserved* (what the allocator took from the driver),
*device* (reserved plus what lies outside the allocator: the CUDA context, NCCL).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple


class Action(IntEnum):
    """What an event does."""

    ALLOC = 0
    FREE = 1
    EMPTY_CACHE = 2
    PHASE = 3  # a mark, no memory: the run enters `Timeline.phases[event.tag]`
    RESET_PEAKS = 4  # a mark, no memory: the trainer resets torch's peak figures; the phase's peaks count from here


class Event(NamedTuple):
    """One step of a timeline. A tuple, because a run has a hundred thousand of them."""

    action: int
    tensor: int  # identity: an ALLOC and its FREE carry the same number; unused by the others
    size_bytes: int  # the request, unrounded
    stream: int
    tag: int  # index into `Timeline.tags` (ALLOC) or `Timeline.phases` (PHASE)


class Tag(NamedTuple):
    """What a block of memory is for: a category for the sums and a label a person can read."""

    category: str  # weights, gradients, optimizer, activations, logits, temporary, workspace, data, engine
    label: str  # e.g. "layers.7.mlp: gate × up"


class Phase(NamedTuple):
    """A stretch of the run: load, forward, loss, backward, clip, optimizer, eval, save; where a policy is held against
    a reference, or generates: reference, generate. Steps count from 1."""

    name: str
    step: int


class Repeat(NamedTuple):
    """A stretch of events that happens `times` more after it happened once: micro-steps of a step, or whole steps.

    `carry`: what the stretch frees of its earlier turn, and the tensor it leaves in its place. `steps`: by how much the
    number of the step goes up from turn to turn. `inner`: what repeats within the stretch.
    """

    start: int  # indexes into `Timeline.events`, the end exclusive
    end: int
    times: int
    carry: tuple[tuple[int, int], ...]
    steps: int = 0
    inner: tuple[Repeat, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Every allocation and free of a run, in order; stretches that repeat are written once.

    `cuts`: positions, ascending, where a stretch begins that may be like another (a layer); numbers of tensors go up.
    `alike`: of cuts whose events are those of an earlier one, under other numbers of tensors, that earlier one.
    """

    events: Sequence[Event]
    tags: Sequence[Tag]
    phases: Sequence[Phase]
    repeats: Sequence[Repeat] = ()
    cuts: Sequence[int] = ()
    alike: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory:
    """The first request that could not be served."""

    step: int
    phase: str
    label: str
    requested_bytes: int
    allocated_bytes: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePeak:
    """The highest marks within one phase of one step."""

    step: int
    phase: str
    peak_allocated_bytes: int
    peak_reserved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReport:
    """What an allocator made of a timeline."""

    peak_allocated_bytes: int
    peak_reserved_bytes: int
    # outside the allocator: context, kernels, NCCL
    outside_bytes: int
    # what the tensors alive at the moment of the highest reserved were for, by category
    breakdown_bytes: Mapping[str, int]
    peak_step: int
    peak_phase: str
    phases: Sequence[PhasePeak]
    retries: int
    out_of_memory: OutOfMemory | None
    settings: str
    # What the allocator may reserve on the card that is meant; None where none is named
    capacity_bytes: int | None = None
    # the most that was reserved before the trainer reset torch's peak figures: in no phase's peak, but on the card
    forgotten_reserved_bytes: int = 0
    assumptions: Sequence[str] = field(default_factory=tuple)
    # of the model's weights: experts that are loaded in 16 bit or more
    experts_bytes: int = 0

    @property
    def highest_reserved_bytes(self) -> int:
        """The most that is reserved at any moment, loading included."""
        highest = max((peak.peak_reserved_bytes for peak in self.phases), default=self.peak_reserved_bytes)
        return max(highest, self.forgotten_reserved_bytes)

    @property
    def highest_allocated_bytes(self) -> int:
        """The most that tensors hold at any moment, loading included."""
        return max((peak.peak_allocated_bytes for peak in self.phases), default=self.peak_allocated_bytes)

    @property
    def idle_bytes(self) -> int:
        """What is reserved at the peak and held by no tensor."""
        return max(0, self.peak_reserved_bytes - sum(self.breakdown_bytes.values()))

    @property
    def device_bytes(self) -> int:
        """What the card must hold: the most that is reserved plus what lies outside the allocator."""
        return self.highest_reserved_bytes + self.outside_bytes
