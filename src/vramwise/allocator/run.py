"""Drive the allocator with a timeline: peaks, where they are, what they are made of, and the first request that fails.

Knows neither where the timeline came from nor how the figures are shown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from vramwise.allocator.blocks import AllocationError, Block
from vramwise.allocator.caching import NEWEST, CachingAllocator
from vramwise.allocator.repeats import play_repeat
from vramwise.allocator.settings import AllocatorSettings, TorchVersion
from vramwise.timeline import Action, MemoryReport, OutOfMemory, Phase, PhasePeak, Timeline

# Where a timeline allocates before its first phase mark.
BEFORE_ANY_PHASE = Phase("start", 0)

# The loop compares plain integers: an IntEnum comparison would cost as much as a free.
_ALLOC, _FREE, _EMPTY_CACHE, _PHASE = (
    int(action) for action in (Action.ALLOC, Action.FREE, Action.EMPTY_CACHE, Action.PHASE)
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
    play = play_timeline(timeline, allocator, apart=apart)
    # Where the run ends in a phase that is apart, that phase is all there is.
    counted = [peak for peak in play.phases if peak.phase not in apart] or play.phases
    return MemoryReport(
        peak_allocated_bytes=max((peak.peak_allocated_bytes for peak in counted), default=0),
        peak_reserved_bytes=max((peak.peak_reserved_bytes for peak in counted), default=0),
        outside_bytes=outside_bytes,
        breakdown_bytes=_breakdown(timeline, play),
        peak_step=play.peak_phase.step,
        peak_phase=play.peak_phase.name,
        phases=play.phases,
        retries=allocator.retries,
        out_of_memory=play.out_of_memory,
        settings=settings.text,
    )


@dataclass(slots=True)
class Play:
    """What came of playing a timeline: `peak_index` is the event at whose end reserved stood highest."""

    live: dict[int, Block | None] = field(default_factory=dict)
    block_sizes: list[int] = field(default_factory=list)  # one for each allocation, in order
    peak_index: int = -1
    peak_phase: Phase = BEFORE_ANY_PHASE
    phases: list[PhasePeak] = field(default_factory=list)
    out_of_memory: OutOfMemory | None = None


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
    start = 0
    for repeat in timeline.repeats if until is None else ():
        turn = partial(player.play, repeat.start, repeat.end)
        if not player.play(start, repeat.start) or not play_repeat(allocator, player.result.live, repeat, turn):
            break
        start = repeat.end
    else:
        player.play(start, len(timeline.events) if until is None else until)
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

    def play(self, start: int, stop: int, first: bool = True) -> bool:
        """Play these events; False if one could not be served. `first`: they have not been played before."""
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
                marks.enter(timeline.phases[tag])
            elif action == _EMPTY_CACHE:
                allocator.empty_cache()
        self._most_reserved, self._most_allocated = most_reserved, most_allocated
        return served


class _PhaseMarks:
    """The highest marks phase by phase: the allocator's own peaks, reset at the start of each phase."""

    def __init__(self, allocator: CachingAllocator) -> None:
        self.phase = BEFORE_ANY_PHASE
        self._allocator = allocator
        self._peaks: dict[Phase, _Marks] = {}

    def enter(self, phase: Phase) -> None:
        self._note()
        self.phase = phase
        self._allocator.reset_peaks()

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
    sizes = iter(play.block_sizes)
    for action, tensor, _, _, tag in timeline.events[: play.peak_index + 1]:
        if action == _ALLOC:
            alive[tensor] = (tag, next(sizes))
        elif action == _FREE:
            del alive[tensor]
    bytes_by_category: dict[str, int] = {}
    for tag, size in alive.values():
        category = timeline.tags[tag].category
        bytes_by_category[category] = bytes_by_category.get(category, 0) + size
    return dict(sorted(bytes_by_category.items(), key=lambda item: -item[1]))
