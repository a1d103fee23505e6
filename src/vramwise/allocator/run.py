"""Plays a timeline into the allocator and reports its peaks, their breakdown, and the first request that fails."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.allocator.caching import NEWEST, CachingAllocator
from vramwise.allocator.player import BEFORE_ANY_PHASE, PlainPlayer, Play
from vramwise.allocator.quick.allocator import FlatAllocator
from vramwise.allocator.quick.player import QuickPlayer
from vramwise.allocator.quick.stretches import Stretches
from vramwise.allocator.settings import AllocatorSettings, TorchVersion
from vramwise.limits.garbage_collection import uncollected
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
    """Play a timeline and return the memory report. Stops at the first request that cannot be served.

    The breakdown is taken when reserved memory is at its peak. Of several such moments, the one with the most
    allocated memory counts.

    - `apart`: names of phases, such as loading, that have their own peaks in `phases` but do not count for the run's.
    - `plainly`: use the plain simulator, event by event. It is slow and meant for tests.
    - `stretches`: the stretches of this timeline, if they were found before.
    - `count`: called with the amount of work done.
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
    # If only phases in `apart` were reached, those count.
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
    """Play a timeline, or its first `until` events, into an allocator. Peaks of phases in `apart` are discarded.

    Repeats are played until the allocator's state recurs. With `until`, they are not repeated.
    """
    return PlainPlayer(timeline, allocator, apart).run(until)


def _breakdown(timeline: Timeline, play: Play) -> dict[str, int]:
    """Return the bytes of each category at the peak, largest first. They add up to the allocated memory there."""
    events = timeline.events
    alive: dict[int, Event | int] = {}  # by tensor: its request, or the position of its request
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
