"""Drive the allocator with a timeline: peaks, where they are, what they are made of, and the first request that fails.

Knows neither where the timeline came from nor how the figures are shown.
"""

from __future__ import annotations

import gc
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from vramwise.allocator.blocks import AllocationError, Block
from vramwise.allocator.caching import NEWEST, CachingAllocator
from vramwise.allocator.repeats import play_repeat
from vramwise.allocator.settings import AllocatorSettings, TorchVersion
from vramwise.allocator.stretch_play import Played, StretchPlayer
from vramwise.allocator.stretches import FEWEST_EVENTS, Stretch
from vramwise.timeline import Action, MemoryReport, OutOfMemory, Phase, PhasePeak, Repeat, Timeline

# Where a timeline allocates before its first phase mark.
BEFORE_ANY_PHASE = Phase("start", 0)

# Events of repetitions that are played though the allocator never comes back to an earlier state: seconds.
_PATIENCE = 2_000_000

# The loop compares plain integers: an IntEnum comparison would cost as much as a free.
_ALLOC, _FREE, _EMPTY_CACHE, _PHASE, _RESET_PEAKS = (
    int(action) for action in (Action.ALLOC, Action.FREE, Action.EMPTY_CACHE, Action.PHASE, Action.RESET_PEAKS)
)


class _Marks(NamedTuple):
    """The highest allocated and reserved bytes."""

    allocated_bytes: int
    reserved_bytes: int


def simulate(
    timeline: Timeline,
    settings: AllocatorSettings,
    *,
    torch: TorchVersion = NEWEST,
    total_bytes: int | None = None,
    limit_bytes: int | None = None,
    outside_bytes: int = 0,
    apart: frozenset[str] = frozenset(),
) -> MemoryReport:
    """What the allocator makes of a timeline. Stops at the first request that cannot be served.

    The breakdown is of the moment when reserved is at its peak; of several such moments, that with the most allocated.
    Phases named in `apart` have their own peaks in `phases`, but do not count for the run's (loading, for instance).
    """
    allocator = CachingAllocator(
        settings, torch=torch, total_bytes=total_bytes, limit_bytes=limit_bytes, outside_bytes=outside_bytes
    )
    with _uncollected():
        play = play_timeline(timeline, allocator, apart=apart)
        breakdown = _breakdown(timeline, play)
    # Where the run ends in a phase that is apart, that phase is all there is.
    counted = [peak for peak in play.phases if peak.phase not in apart] or play.phases
    return MemoryReport(
        peak_allocated_bytes=max((peak.peak_allocated_bytes for peak in counted), default=0),
        peak_reserved_bytes=max((peak.peak_reserved_bytes for peak in counted), default=0),
        outside_bytes=outside_bytes,
        breakdown_bytes=breakdown,
        peak_step=play.peak_phase.step,
        peak_phase=play.peak_phase.name,
        phases=play.phases,
        retries=allocator.retries,
        out_of_memory=play.out_of_memory,
        settings=settings.text,
        assumptions=tuple(play.left_out),
        forgotten_reserved_bytes=play.forgotten_bytes,
    )


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the garbage collector, which would go through a hundred thousand events again and again."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@dataclass(slots=True)
class Play:
    """What came of playing a timeline: `peak_index` is the event at whose end reserved stood highest."""

    live: dict[int, Block | None] = field(default_factory=dict)
    block_sizes: list[int] = field(default_factory=list)  # one for each allocation, in order
    wholes: list[tuple[int, Stretch]] = field(default_factory=list)  # stretches played as such, by their start
    peak_index: int = -1
    peak_phase: Phase = BEFORE_ANY_PHASE
    phases: list[PhasePeak] = field(default_factory=list)
    out_of_memory: OutOfMemory | None = None
    left_out: list[str] = field(default_factory=list)  # turns that were not played, in sentences
    forgotten_bytes: int = 0  # the most that was reserved before a reset of the peaks


def play_timeline(
    timeline: Timeline,
    allocator: CachingAllocator,
    until: int | None = None,
    *,
    apart: frozenset[str] = frozenset(),
) -> Play:
    """Play a timeline, or its first events, into an allocator. A peak within phases that are `apart` gives way.

    Stretches that repeat are played again until nothing new can come of it; not so where only the first events count.
    """
    player = _Player(timeline, allocator, apart)
    if until is None:
        player.stretch(0, len(timeline.events), timeline.repeats)
    else:
        player.play(0, until)
    player.result.phases = player.marks.close()
    return player.result


class _Player:
    """A timeline being played: stretch by stretch, into one allocator."""

    def __init__(self, timeline: Timeline, allocator: CachingAllocator, apart: frozenset[str]) -> None:
        self.timeline = timeline
        self.allocator = allocator
        self.apart = apart
        self.result = Play()
        self.marks = _PhaseMarks(allocator)
        self._most_reserved = self._most_allocated = -1
        self._shift = 0  # steps since the first turn of a repeat whose turns are steps
        self._patience = _PATIENCE
        self._cuts = timeline.cuts if allocator.takes_the_first_that_fits else ()
        self._alike = StretchPlayer(allocator, self.result.live, timeline.events)

    def stretch(self, start: int, stop: int, repeats: Sequence[Repeat], first: bool = True) -> bool:
        """Play these events and what repeats among them; False if one could not be served."""
        for repeat in repeats:
            turns = _Turns(self, first)
            if not self.play(start, repeat.start, first):
                return False
            if not play_repeat(self.allocator, self.result.live, repeat, turns):
                return False
            start = repeat.end
        return self.play(start, stop, first)

    def turn(self, repeat: Repeat, number: int, first: bool) -> bool:
        """Play one turn of a repeat: the step's number goes on from turn to turn."""
        shift, self._shift = self._shift, self._shift + number * repeat.steps
        self._patience -= repeat.end - repeat.start if number else 0
        served = self.stretch(repeat.start, repeat.end, repeat.inner, first and not number)
        self._shift = shift
        return served

    def skip(self, repeat: Repeat, number: int, turns: int, period: int) -> None:
        """Turns that do as an earlier one did reach the same marks."""
        if not repeat.steps:
            return
        first = next(event[4] for event in self.timeline.events[repeat.start :] if event[0] == _PHASE)
        step = self.timeline.phases[first].step + self._shift
        self.marks.enter(self.marks.phase)
        for turn in range(number, number + turns):
            self.marks.copy(step + (number - period + (turn - number) % period) * repeat.steps, step + turn)

    def patient(self, repeat: Repeat, number: int) -> bool:
        """Whether turns that lead nowhere new may still be played; if not, that is noted."""
        if number < 2 or self._patience > 0:
            return True
        what = "steps" if repeat.steps else "micro-steps"
        left = f"the allocator's state never comes back: {what} after the first {number:,} of a kind are not simulated"
        if left not in self.result.left_out:
            self.result.left_out.append(left)
        return False

    def play(self, start: int, stop: int, first: bool = True) -> bool:
        """Play these events; False if one could not be served. `first`: they have not been played before."""
        cuts = self._cuts
        single = start  # from here on request by request
        for at in range(bisect_left(cuts, start), bisect_left(cuts, stop)):
            begin, end = cuts[at], cuts[at + 1] if at + 1 < len(cuts) else stop
            if end > stop or end - begin < FEWEST_EVENTS:
                continue
            if single < begin and not self._single(single, begin, first):
                return False
            reserved, allocated = self.allocator.reserved_bytes, self.allocator.allocated_bytes
            played = self._alike.play(begin, end)
            single = begin if played is None else end
            if played is not None:
                self._note(played, begin, reserved, allocated, first)
        return self._single(single, stop, first)

    def _note(self, played: Played, start: int, reserved: int, allocated: int, first: bool) -> None:
        """A stretch was played as a whole: did it reach a new peak? The figures are those at its start."""
        outcome, stretch = played.outcome, played.stretch
        if first:
            self.result.block_sizes += outcome.sizes
            self.result.wholes.append((start, stretch))
        begin = 0
        for end, following in (*played.growths, (len(outcome.sizes), 0)):
            if begin < end and reserved >= self._most_reserved:
                highest = max(outcome.allocated[begin:end])
                if reserved > self._most_reserved or allocated + highest > self._most_allocated:
                    self._most_reserved, self._most_allocated = reserved, allocated + highest
                    at = outcome.allocated.index(highest, begin)
                    self.result.peak_index, self.result.peak_phase = start + stretch.requests[at], self.marks.phase
            begin, reserved = end, following

    def _single(self, start: int, stop: int, first: bool) -> bool:
        """Play these events one by one."""
        timeline, allocator, marks, play = self.timeline, self.allocator, self.marks, self.result
        live, block_sizes = play.live, play.block_sizes
        malloc, free = allocator.malloc, allocator.free
        most_reserved, most_allocated = self._most_reserved, self._most_allocated
        served = True
        for index, (action, tensor, size_bytes, stream, tag) in enumerate(timeline.events[start:stop], start):
            if action == _ALLOC:
                try:
                    block = malloc(size_bytes, stream)
                except AllocationError:
                    play.out_of_memory = _failure(allocator, marks.phase, timeline.tags[tag].label, size_bytes)
                    served = False
                    break
                live[tensor] = block
                if first:
                    block_sizes.append(0 if block is None else block.size)
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
            elif action == _PHASE:
                if marks.phase.name in self.apart:
                    most_reserved = most_allocated = -1
                phase = timeline.phases[tag]
                marks.enter(Phase(phase.name, phase.step + self._shift) if self._shift else phase)
            elif action == _EMPTY_CACHE:
                allocator.empty_cache()
            elif action == _RESET_PEAKS:
                play.forgotten_bytes = max(play.forgotten_bytes, marks.forget())
        self._most_reserved, self._most_allocated = most_reserved, most_allocated
        return served


class _Turns:
    """The turns of one repeat, as `play_repeat` asks for them. `first`: the repeat itself is met for the first time."""

    def __init__(self, player: _Player, first: bool) -> None:
        self._first = first
        self._player = player
        self.skip = player.skip
        self.patient = player.patient

    def turn(self, repeat: Repeat, number: int) -> bool:
        return self._player.turn(repeat, number, self._first)


class _PhaseMarks:
    """The highest marks phase by phase: the allocator's own peaks, reset at the start of each phase."""

    def __init__(self, allocator: CachingAllocator) -> None:
        self.phase = BEFORE_ANY_PHASE
        self._allocator = allocator
        self._peaks: dict[Phase, _Marks] = {}
        self._of_step: dict[int, list[tuple[str, _Marks]]] = {}

    def enter(self, phase: Phase) -> None:
        self._note()
        self.phase = phase
        self._allocator.reset_peaks()

    def forget(self) -> int:
        """The phase's marks begin anew; returns the highest reserved so far."""
        highest = max(self._allocator.peak_reserved_bytes, self._peaks.pop(self.phase, _Marks(0, 0)).reserved_bytes)
        self._allocator.reset_peaks()
        return highest

    def copy(self, step: int, other: int) -> None:
        """The phases of another step reach the same marks."""
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
        # A phase may come several times in a step (micro-batches): its marks are the highest of them.
        before = self._peaks.get(self.phase, _Marks(0, 0))
        self._peaks[self.phase] = _Marks(max(before.allocated_bytes, allocated), max(before.reserved_bytes, reserved))


def _failure(allocator: CachingAllocator, phase: Phase, label: str, requested_bytes: int) -> OutOfMemory:
    return OutOfMemory(
        step=phase.step,
        phase=phase.name,
        label=label,
        requested_bytes=requested_bytes,
        allocated_bytes=allocator.allocated_bytes,
        reserved_bytes=allocator.reserved_bytes,
    )


def _breakdown(timeline: Timeline, play: Play) -> dict[str, int]:
    """Bytes by category of the blocks alive at the peak, the largest first. They add up to allocated at that moment."""
    alive: dict[int, tuple[int, int]] = {}
    events, sizes, met = timeline.events, play.block_sizes, 0
    start, end = 0, play.peak_index + 1
    for begin, stretch in (*play.wholes, (end, None)):
        for action, tensor, _, _, tag in events[start : min(begin, end)]:
            if action == _ALLOC:
                alive[tensor] = (tag, sizes[met])
                met += 1
            elif action == _FREE:
                del alive[tensor]
        start = begin
        if stretch is None or begin + stretch.length > end:
            continue
        for number, position in stretch.kept:
            alive[events[begin + position][1]] = (events[begin + position][4], sizes[met + number])
        for position in stretch.freed:
            del alive[events[begin + position][1]]
        met += len(stretch.requests)
        start = begin + stretch.length
    bytes_by_category: dict[str, int] = {}
    for tag, size in alive.values():
        category = timeline.tags[tag].category
        bytes_by_category[category] = bytes_by_category.get(category, 0) + size
    return dict(sorted(bytes_by_category.items(), key=lambda item: -item[1]))
