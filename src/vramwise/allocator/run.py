"""Drive the allocator with a timeline: peaks, where they are, what they are made of, and the first request that fails.

Knows neither where the timeline came from nor how the figures are shown.
"""

from __future__ import annotations

from collections.abc import Callable

from vramwise.allocator.caching import NEWEST, CachingAllocator
from vramwise.allocator.player import BEFORE_ANY_PHASE, PlainPlayer, Play
from vramwise.allocator.quick.allocator import FlatAllocator
from vramwise.allocator.quick.player import QuickPlayer
from vramwise.allocator.quick.stretches import Stretches
from vramwise.allocator.settings import AllocatorSettings, TorchVersion
from vramwise.collecting import uncollected
from vramwise.timeline import Action, Event, MemoryReport, Timeline

__all__ = ["BEFORE_ANY_PHASE", "Play", "play_timeline", "simulate"]

_ALLOC, _FREE = int(Action.ALLOC), int(Action.FREE)


def simulate(
    timeline: Timeline,
    settings: AllocatorSettings,
    *,
    torch: TorchVersion = NEWEST,
    total_bytes: int | None = None,
    limit_bytes: int | None = None,
    outside_bytes: int = 0,
    apart: frozenset[str] = frozenset(),
    plainly: bool = False,
    stretches: Stretches | None = None,
    count: Callable[[int], None] | None = None,
) -> MemoryReport:
    """What the allocator makes of a timeline. Stops at the first request that cannot be served.

    The breakdown is of the moment when reserved is at its peak; of several such moments, that with the most allocated.
    Phases named in `apart` have their own peaks in `phases`, but do not count for the run's (loading, for instance).
    `plainly`: event by event, whatever repeats itself; for tests, slow. `stretches`: of this timeline, found before.
    `count`: called with the amount of work it took.
    """
    allocator = CachingAllocator(
        settings, torch=torch, total_bytes=total_bytes, limit_bytes=limit_bytes, outside_bytes=outside_bytes
    )
    with uncollected():
        player: PlainPlayer | QuickPlayer
        if allocator.takes_the_first_that_fits and not plainly:
            player = QuickPlayer(timeline, FlatAllocator(allocator), apart, stretches)
        else:
            player = PlainPlayer(timeline, allocator, apart)
        play = player.run()
        breakdown = _breakdown(timeline, play)
    if count is not None:
        count(player.worked)
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
        retries=player.allocator.retries,
        out_of_memory=play.out_of_memory,
        settings=settings.text,
        assumptions=tuple(play.left_out),
        forgotten_reserved_bytes=play.forgotten_bytes,
    )


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
    return PlainPlayer(timeline, allocator, apart).run(until)


def _breakdown(timeline: Timeline, play: Play) -> dict[str, int]:
    """Bytes by category of the blocks alive at the peak, the largest first. They add up to allocated at that moment."""
    events = timeline.events
    alive: dict[int, Event | int] = {}  # by tensor its request, or the position of that
    start, end = 0, play.peak_index + 1
    for begin, stretch, first, freed in (*play.wholes, (end, None, 0, ())):
        if start < min(begin, end):
            part = events[start : min(begin, end)]
            alive.update([(event[1], event) for event in part if event[0] == _ALLOC])
            for tensor in [event[1] for event in part if event[0] == _FREE]:
                del alive[tensor]
        start = min(begin, end)
        if stretch is None or begin + stretch.length > end:
            continue
        alive.update([(first + tensor, begin + position) for tensor, position in stretch.kept])
        for tensor in freed:
            del alive[tensor]
        start = begin + stretch.length
    larger = {events[index][1]: size for index, size in play.odd_sizes.items()}
    bytes_by_tag: dict[int, int] = {}
    for tensor, found in alive.items():
        _, _, request, _, tag = events[found] if isinstance(found, int) else found
        bytes_by_tag[tag] = bytes_by_tag.get(tag, 0) + (larger.get(tensor) or (request + 511) & -512)
    bytes_by_category: dict[str, int] = {}
    for tag, size in bytes_by_tag.items():
        category = timeline.tags[tag].category
        bytes_by_category[category] = bytes_by_category.get(category, 0) + size
    return dict(sorted(bytes_by_category.items(), key=lambda item: -item[1]))
