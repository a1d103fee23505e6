"""The data types of memory: the allocations and frees of a run in order, and the resulting report.

A measured snapshot and a predicted run are both a `Timeline`, so prediction, replay, diagnosis and charts share one
code path. Three figures are always named: *allocated* (tensors), *reserved* (memory that the allocator took from the
driver) and *device* (reserved plus memory outside the allocator: the CUDA context, NCCL).
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
    """One event of a timeline. A tuple, because a run has a hundred thousand of them."""

    action: int
    tensor: int  # identity: an ALLOC and its FREE carry the same number; unused by the others
    size_bytes: int  # the request, unrounded
    stream: int
    tag: int  # index into `Timeline.tags` (ALLOC) or `Timeline.phases` (PHASE)


class Tag(NamedTuple):
    """The purpose of a block of memory: a category for sums and a label for people."""

    category: str  # weights, gradients, optimizer, activations, logits, temporary, workspace, data, engine
    label: str  # e.g. "layers.7.mlp: gate × up"


class Phase(NamedTuple):
    """A part of the run: load, forward, loss, backward, clip, optimizer, eval or save.

    Runs with a reference or with generation also have the phases reference and generate. Steps count from 1.
    """

    name: str
    step: int


class Repeat(NamedTuple):
    """A range of events that repeats `times` more times: the micro-steps of a step, or whole steps.

    `carry`: pairs of a tensor of the previous turn that the range frees, and the tensor that takes its place. `steps`:
    the increase of the step number from turn to turn. `inner`: repeats within the range.
    """

    start: int  # indexes into `Timeline.events`, the end exclusive
    end: int
    times: int
    carry: tuple[tuple[int, int], ...]
    steps: int = 0
    inner: tuple[Repeat, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Every allocation and free of a run, in order; ranges that repeat are stored once.

    `cuts`: ascending positions where a range begins that may equal another one (a layer); tensor numbers increase.
    """

    events: Sequence[Event]
    tags: Sequence[Tag]
    phases: Sequence[Phase]
    repeats: Sequence[Repeat] = ()
    cuts: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory:
    """The first request that failed."""

    step: int
    phase: str
    label: str
    requested_bytes: int
    allocated_bytes: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePeak:
    """The peaks of one phase of one step."""

    step: int
    phase: str
    peak_allocated_bytes: int
    peak_reserved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReport:
    """The result of running a timeline through the allocator."""

    peak_allocated_bytes: int
    peak_reserved_bytes: int
    # outside the allocator: context, kernels, NCCL
    outside_bytes: int
    # bytes of live tensors at the peak of reserved memory, by category
    breakdown_bytes: Mapping[str, int]
    peak_step: int
    peak_phase: str
    phases: Sequence[PhasePeak]
    retries: int
    out_of_memory: OutOfMemory | None
    settings: str
    # The memory that the allocator may reserve on the target card; None if no card is given
    capacity_bytes: int | None = None
    # the reserved peak before the trainer reset torch's peak figures: in no phase's peak, but the card must hold it
    forgotten_reserved_bytes: int = 0
    assumptions: Sequence[str] = field(default_factory=tuple)
    # the highest reserved memory over rows of mixed lengths; 0 if they were not simulated
    mixed_rows_bytes: int = 0
    # weights of experts that are loaded in 16 bits or more
    experts_bytes: int = 0
    # the least that the weights of an inference engine beside the policy take; 0: there is none
    engine_weights_bytes: int = 0

    @property
    def highest_reserved_bytes(self) -> int:
        """The highest reserved memory at any moment, including loading."""
        highest = max((peak.peak_reserved_bytes for peak in self.phases), default=self.peak_reserved_bytes)
        return max(highest, self.forgotten_reserved_bytes)

    @property
    def highest_allocated_bytes(self) -> int:
        """The highest allocated memory at any moment, including loading."""
        return max((peak.peak_allocated_bytes for peak in self.phases), default=self.peak_allocated_bytes)

    @property
    def idle_bytes(self) -> int:
        """Memory that is reserved at the peak but held by no tensor."""
        return max(0, self.peak_reserved_bytes - sum(self.breakdown_bytes.values()))

    @property
    def device_bytes(self) -> int:
        """The memory that the card must hold: the highest reserved memory plus what is outside the allocator."""
        return self.highest_reserved_bytes + self.outside_bytes
