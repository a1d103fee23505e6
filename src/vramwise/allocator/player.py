"""Plays a timeline into an allocator, event by event, and records the peaks of each phase."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from vramwise.allocator.blocks import AllocationError
from vramwise.allocator.caching import CachingAllocator
from vramwise.allocator.repeats import Counting, Live, State, play_repeat, state_of
from vramwise.timeline import Action, OutOfMemory, Phase, PhasePeak, Repeat, Timeline

# The phase of allocations before a timeline's first phase mark.
BEFORE_ANY_PHASE = Phase("start", 0)

# The cost of playing one event by itself, relative to one step of a stretch that is played as a whole.
EVENT_BY_EVENT = 2
# How many events of repeats are played if the allocator's state never recurs. This takes seconds.
_PATIENCE = 2_000_000

# The loop compares plain integers: an IntEnum comparison would cost as much as a free.
_ALLOC, _FREE, _EMPTY_CACHE, _PHASE, _RESET_PEAKS = (
    int(action) for action in (Action.ALLOC, Action.FREE, Action.EMPTY_CACHE, Action.PHASE, Action.RESET_PEAKS)
)


class _Marks(NamedTuple):
    """The highest allocated and reserved bytes."""

    allocated_bytes: int
    reserved_bytes: int


class Whole(Protocol):
    """The facts about a stretch that do not need its events."""

    @property
    def length(self) -> int:
        """The number of its events."""

    @property
    def kept(self) -> Sequence[tuple[int, int]]:
        """The tensors that it makes and leaves: their numbers, counted from its first, and their positions."""


class PlayedWhole(NamedTuple):
    """A stretch that was played as a whole: its start, its first tensor, and the earlier tensors that it freed."""

    start: int
    stretch: Whole
    first: int
    freed: Sequence[int]


class Counters(Counting, Protocol):
    """The part of an allocator's interface that a player uses."""

    allocated_bytes: int
    reserved_bytes: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int

    def reset_peaks(self) -> None:
        """Reset the peaks to the current values."""

    def empty_cache(self) -> None:
        """Return all completely free memory to the driver."""


@dataclass(slots=True)
class Play:
    """The result of playing a timeline. `peak_index` is the event after which the most memory was reserved."""

    live: Live = field(default_factory=dict)
    odd_sizes: dict[int, int] = field(default_factory=dict)  # of blocks larger than their request, by event
    wholes: list[PlayedWhole] = field(default_factory=list)  # by start
    peak_index: int = -1
    peak_phase: Phase = BEFORE_ANY_PHASE
    phases: list[PhasePeak] = field(default_factory=list)
    out_of_memory: OutOfMemory | None = None
    left_out: list[str] = field(default_factory=list)  # messages about turns that were not played
    forgotten_bytes: int = 0  # the most memory reserved before a reset of the peaks


AnyAllocator = TypeVar("AnyAllocator", bound=Counters)


class Player(ABC, Generic[AnyAllocator]):
    """Plays a timeline, with its repeats, into one allocator."""

    def __init__(self, timeline: Timeline, allocator: AnyAllocator, apart: frozenset[str]) -> None:
        self.timeline = timeline
        self.allocator = allocator
        self.apart = apart
        self.result = Play()
        self.marks = _PhaseMarks(allocator)
        self._most_reserved = self._most_allocated = -1
        self._shift = 0  # steps since the first turn of a repeat whose turns are steps
        self._patience = _PATIENCE
        self.worked = 0  # amount of work: roughly microseconds on a slow machine

    def run(self, until: int | None = None) -> Play:
        """Play the timeline, or its first `until` events without repeats, and return the result."""
        if until is None:
            self.stretch(0, len(self.timeline.events), self.timeline.repeats)
        else:
            self.play(0, until)
        self.result.phases = self.marks.close()
        return self.result

    def stretch(self, start: int, stop: int, repeats: Sequence[Repeat], first: bool = True) -> bool:
        """Play these events, including the repeats among them. Returns False if a request fails."""
        for repeat in repeats:
            turns = _Turns(self, first)
            if not self.play(start, repeat.start, first):
                return False
            if not play_repeat(turns, self.result.live, repeat):
                return False
            start = repeat.end
        return self.play(start, stop, first)

    def turn(self, repeat: Repeat, number: int, first: bool) -> bool:
        """Play one turn of a repeat, with step numbers that continue from turn to turn. Returns False on failure."""
        shift, self._shift = self._shift, self._shift + number * repeat.steps
        self._patience -= repeat.end - repeat.start if number else 0
        served = self.stretch(repeat.start, repeat.end, repeat.inner, first and not number)
        self._shift = shift
        return served

    @abstractmethod
    def play(self, start: int, stop: int, first: bool = True) -> bool:
        """Play these events. Returns False if a request fails. `first`: they have not been played before."""

    @abstractmethod
    def state(self, carried: Sequence[Any]) -> State:
        """Return everything that determines how events are served: the allocator's state and the carried tensors."""

    def skip(self, repeat: Repeat, number: int, turns: int, period: int) -> None:
        """Copy the peaks of earlier steps to the skipped turns, which are the same."""
        if not repeat.steps:
            return
        events = self.timeline.events
        first = next(events[at][4] for at in range(repeat.start, repeat.end) if events[at][0] == _PHASE)
        step = self.timeline.phases[first].step + self._shift
        self.marks.enter(self.marks.phase)
        for turn in range(number, number + turns):
            self.marks.copy(step + (number - period + (turn - number) % period) * repeat.steps, step + turn)

    def rename(self, old: int, new: int) -> None:
        """Rename a live tensor."""
        self.result.live[new] = self.result.live.pop(old)

    def patient(self, repeat: Repeat, number: int) -> bool:
        """Return whether one more turn may be played although no state recurs. If not, add a message to `left_out`."""
        if number < 2 or self._patience > 0:
            return True
        what = "steps" if repeat.steps else "micro-steps"
        left = f"the allocator's state never comes back: {what} after the first {number:,} of a kind are not simulated"
        if left not in self.result.left_out:
            self.result.left_out.append(left)
        return False

    def mark(self, action: int, tag: int) -> None:
        """Handle an event that is neither a request nor a free."""
        if action == _PHASE:
            if self.marks.phase.name in self.apart:
                self._most_reserved = self._most_allocated = -1
            phase = self.timeline.phases[tag]
            self.marks.enter(Phase(phase.name, phase.step + self._shift) if self._shift else phase)
        elif action == _EMPTY_CACHE:
            self.allocator.empty_cache()
        elif action == _RESET_PEAKS:
            self.result.forgotten_bytes = max(self.result.forgotten_bytes, self.marks.forget())


class PlainPlayer(Player[CachingAllocator]):
    """Plays every event by itself."""

    def state(self, carried: Sequence[Any]) -> State:
        """Return everything that determines how events are served."""
        return state_of(self.allocator, carried)

    def play(self, start: int, stop: int, first: bool = True) -> bool:
        """Play these events one by one. Returns False if a request fails. `first`: they have not been played before."""
        timeline, allocator, marks, play = self.timeline, self.allocator, self.marks, self.result
        live, odd_sizes = play.live, play.odd_sizes
        malloc, free = allocator.malloc, allocator.free
        most_reserved, most_allocated = self._most_reserved, self._most_allocated
        served = True
        self.worked += EVENT_BY_EVENT * (stop - start)
        for index, (action, tensor, size_bytes, stream, tag) in enumerate(timeline.events[start:stop], start):
            if action == _ALLOC:
                try:
                    block = malloc(size_bytes, stream)
                except AllocationError:
                    play.out_of_memory = failure(allocator, marks.phase, timeline.tags[tag].label, size_bytes)
                    served = False
                    break
                live[tensor] = block
                if first and block is not None and block.size != (size_bytes + 511) & -512:
                    odd_sizes[index] = block.size
                reserved = allocator.reserved_bytes
                if reserved >= most_reserved and (
                    reserved > most_reserved or allocator.allocated_bytes > most_allocated
                ):
                    most_reserved, most_allocated = reserved, allocator.allocated_bytes
                    play.peak_index, play.peak_phase = index, marks.phase
            elif action == _FREE:
                block = live.pop(tensor)
                if block is not None:
                    free(block)
            else:
                self._most_reserved, self._most_allocated = most_reserved, most_allocated
                self.mark(action, tag)
                most_reserved, most_allocated = self._most_reserved, self._most_allocated
        self._most_reserved, self._most_allocated = most_reserved, most_allocated
        return served


class _Turns:
    """The `TurnPlayer` of one repeat. `first`: whether the repeat itself is played for the first time."""

    def __init__(self, player: Player[Any], first: bool) -> None:
        self._first = first
        self._player = player
        self.allocator = player.allocator
        self.state = player.state
        self.skip = player.skip
        self.patient = player.patient
        self.rename = player.rename

    def turn(self, repeat: Repeat, number: int) -> bool:
        return self._player.turn(repeat, number, self._first)


class _PhaseMarks:
    """The peaks of each phase: the allocator's own peaks, reset at the start of each phase."""

    def __init__(self, allocator: Counters) -> None:
        self.phase = BEFORE_ANY_PHASE
        self._allocator = allocator
        self._peaks: dict[Phase, _Marks] = {}
        self._of_step: dict[int, list[tuple[str, _Marks]]] = {}

    def enter(self, phase: Phase) -> None:
        self._note()
        self.phase = phase
        self._allocator.reset_peaks()

    def forget(self) -> int:
        """Reset the peaks of the current phase. Returns its peak of reserved bytes so far."""
        highest = max(self._allocator.peak_reserved_bytes, self._peaks.pop(self.phase, _Marks(0, 0)).reserved_bytes)
        self._allocator.reset_peaks()
        return highest

    def copy(self, step: int, other: int) -> None:
        """Copy the peaks of the phases of `step` to the step `other`."""
        if step not in self._of_step:
            self._of_step = {}
            for phase, peak in self._peaks.items():
                self._of_step.setdefault(phase.step, []).append((phase.name, peak))
        for name, peak in self._of_step[step]:
            self._peaks[Phase(name, other)] = peak

    def close(self) -> list[PhasePeak]:
        self._note()
        return [
            PhasePeak(
                step=phase.step,
                phase=phase.name,
                peak_allocated_bytes=peak.allocated_bytes,
                peak_reserved_bytes=peak.reserved_bytes,
            )
            for phase, peak in self._peaks.items()
        ]

    def _note(self) -> None:
        allocated, reserved = self._allocator.peak_allocated_bytes, self._allocator.peak_reserved_bytes
        if self.phase is BEFORE_ANY_PHASE and not reserved:
            return
        # A phase may occur several times in a step (micro-batches). Its peaks are the highest of them.
        before = self._peaks.get(self.phase, _Marks(0, 0))
        self._peaks[self.phase] = _Marks(max(before.allocated_bytes, allocated), max(before.reserved_bytes, reserved))


def failure(allocator: Counters, phase: Phase, label: str, requested_bytes: int) -> OutOfMemory:
    """Return the failed request with the allocator's state at that moment."""
    return OutOfMemory(
        step=phase.step,
        phase=phase.name,
        label=label,
        requested_bytes=requested_bytes,
        allocated_bytes=allocator.allocated_bytes,
        reserved_bytes=allocator.reserved_bytes,
    )
