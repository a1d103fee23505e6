"""Samples a run for charts: a few thousand moments of a timeline, chosen so that no peak is lost.

Plays a timeline into the allocator and keeps the highs and lows that a chart can show, of many short stretches. A
stretch ends where a phase ends. The more visible changes it has, the shorter it is; an allocation that moves the curve
by less than a pixel counts for little. A moment has the allocated memory by category, the reserved memory and the
latest requests. The segments are kept for one moment, the focus.

Each segment is a bar of runs, which are either in use or holes. Neighbouring blocks of the same category are merged
into one run, so that a bar stays readable.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from typing import NamedTuple

from vramwise.allocator.blocks import UNMAPPED, USED, WAITING, AllocationError, Block, Segment
from vramwise.allocator.caching import NEWEST, UNLIMITED, CachingAllocator
from vramwise.allocator.run import BEFORE_ANY_PHASE, play_timeline
from vramwise.allocator.settings import AllocatorSettings, TorchVersion
from vramwise.timeline import Action, Event, Phase, Tag, Timeline

# Categories of runs that hold no tensors in use.
HOLE = ""
HELD_BACK = "waiting for another stream"


class Run(NamedTuple):
    """Adjacent blocks of the same category. A hole has the category `HOLE`, no label and one block."""

    category: str
    size_bytes: int
    label: str  # of the largest block
    blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentBar:
    """A contiguous piece of memory: a plain segment, or a mapped range of an expandable one."""

    small_pool: bool
    expandable: bool
    stream: int
    size_bytes: int
    runs: Sequence[Run]

    @property
    def free_bytes(self) -> int:
        """The total size of the holes."""
        return sum(run.size_bytes for run in self.runs if run.category == HOLE)

    @property
    def largest_hole_bytes(self) -> int:
        """The largest request that needs no new memory here."""
        return max((run.size_bytes for run in self.runs if run.category == HOLE), default=0)


def segment_bars(allocator: CachingAllocator, tags: Mapping[Block, Tag]) -> list[SegmentBar]:
    """Return the bars of all segments, in the order in which the segments were created."""
    return [bar for segment in allocator.segments for bar in _bars(segment, tags)]


def _bars(segment: Segment, tags: Mapping[Block, Tag]) -> list[SegmentBar]:
    pieces: list[list[Block]] = [[]]
    for block in segment.blocks():
        if block.state == UNMAPPED:
            pieces.append([])
        else:
            pieces[-1].append(block)
    return [
        SegmentBar(
            small_pool=segment.shelf.pool.small,
            expandable=bool(segment.granule),
            stream=segment.shelf.stream,
            size_bytes=sum(block.size for block in piece),
            runs=_runs(piece, tags),
        )
        for piece in pieces
        if piece
    ]


def _runs(piece: Sequence[Block], tags: Mapping[Block, Tag]) -> list[Run]:
    runs: list[Run] = []
    largest = 0
    for block in piece:
        category, label = _purpose(block, tags)
        if runs and runs[-1].category == category:
            before = runs[-1]
            label = label if block.size > largest else before.label
            runs[-1] = Run(category, before.size_bytes + block.size, label, before.blocks + 1)
            largest = max(largest, block.size)
        else:
            runs.append(Run(category, block.size, label, 1))
            largest = block.size
    return runs


def _purpose(block: Block, tags: Mapping[Block, Tag]) -> Tag:
    if block.state == USED:
        return tags[block]
    return Tag(HELD_BACK, "") if block.state == WAITING else Tag(HOLE, "")


# Each stretch gives up to three moments. There are more stretches than columns on a screen, so that zooming in works.
STRETCHES = 3000
# How many of the allocations since the previous moment are listed.
NAMED_ALLOCATIONS = 3

_ALLOC, _FREE, _EMPTY_CACHE, _PHASE = (
    int(action) for action in (Action.ALLOC, Action.FREE, Action.EMPTY_CACHE, Action.PHASE)
)


class Allocation(NamedTuple):
    """Allocations under one label: their total size (of blocks, as rounded by the allocator) and their number."""

    tag: Tag
    size_bytes: int
    times: int


class Moment(NamedTuple):
    """The state after an event. `category_bytes` follows `Profile.categories` and adds up to allocated."""

    event: int
    reserved_bytes: int
    category_bytes: tuple[int, ...]
    # the largest since the previous moment, largest first
    allocations: tuple[Allocation, ...]

    @property
    def allocated_bytes(self) -> int:
        """The bytes allocated in all categories."""
        return sum(self.category_bytes)


class Mark(NamedTuple):
    """The run enters a phase at this event."""

    event: int
    phase: Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The data for a chart. `peak` and `focus` are positions in `moments`.

    The peak is the moment with the most reserved memory; of several, the one with the most allocated. The focus is the
    moment whose segments and holdings are kept: the peak, or the end if the run ran out of memory.
    """

    event_count: int  # events played: all of them, or up to and including the request that failed
    categories: tuple[str, ...]
    marks: Sequence[Mark]
    moments: Sequence[Moment]
    peak: int
    focus: int
    # what is alive at the focus, by label, largest first
    holdings: Sequence[Allocation]
    segments: Sequence[SegmentBar]
    failed: Allocation | None  # the request that could not be served, as requested
    # how much the allocator may reserve: the GPU's memory less that of other users, or a lower limit; None: no bound
    bound_bytes: int | None

    def phase_at(self, event: int) -> Phase:
        """Return the phase of an event."""
        found = BEFORE_ANY_PHASE
        for mark in self.marks:
            if mark.event > event:
                break
            found = mark.phase
        return found


def profile_timeline(
    timeline: Timeline,
    settings: AllocatorSettings,
    *,
    torch: TorchVersion = NEWEST,
    total_bytes: int | None = None,
    limit_bytes: int | None = None,
    outside_bytes: int = 0,
    stretches: int = STRETCHES,
) -> Profile:
    """Return the sampled run and its segments, under the same conditions as `run.simulate`."""

    def new_allocator() -> CachingAllocator:
        return CachingAllocator(
            settings, torch=torch, total_bytes=total_bytes, limit_bytes=limit_bytes, outside_bytes=outside_bytes
        )

    allocator = new_allocator()
    curve = _play(timeline, allocator)
    played = timeline.events[: len(curve.allocated)]
    marks = [Mark(index, timeline.phases[event[4]]) for index, event in enumerate(played) if event[0] == _PHASE]
    chosen = choose_moments(curve.allocated, curve.reserved, [mark.event for mark in marks], stretches)
    categories, moments = _moments(timeline, played, curve, chosen)
    heights = [(moment.reserved_bytes, moment.allocated_bytes) for moment in moments]
    peak = heights.index(max(heights)) if heights else 0
    focus = peak if curve.failed is None else len(moments) - 1
    until = moments[focus].event + 1 if moments else 0
    holdings, segments = _state_after(timeline, new_allocator(), until)
    return Profile(
        event_count=len(played),
        categories=categories,
        marks=marks,
        moments=moments,
        peak=peak,
        focus=focus,
        holdings=holdings,
        segments=segments,
        failed=curve.failed,
        bound_bytes=_bound(allocator),
    )


@dataclass(slots=True)
class _Curve:
    """Allocated and reserved after each event, and the block sizes of all allocations in order."""

    allocated: array[int] = field(default_factory=lambda: array("q"))
    reserved: array[int] = field(default_factory=lambda: array("q"))
    block_sizes: array[int] = field(default_factory=lambda: array("q"))
    failed: Allocation | None = None


def _play(timeline: Timeline, allocator: CachingAllocator) -> _Curve:
    curve = _Curve()
    live: dict[int, Block | None] = {}
    malloc, free = allocator.malloc, allocator.free
    note_size, note_allocated, note_reserved = (
        curve.block_sizes.append,
        curve.allocated.append,
        curve.reserved.append,
    )
    for action, tensor, size_bytes, stream, tag in timeline.events:
        if action == _ALLOC:
            try:
                block = live[tensor] = malloc(size_bytes, stream)
            except AllocationError:
                curve.failed = Allocation(timeline.tags[tag], size_bytes, 1)
                block = None
            note_size(0 if block is None else block.size)
        elif action == _FREE:
            block = live.pop(tensor)
            if block is not None:
                free(block)
        elif action == _EMPTY_CACHE:
            allocator.empty_cache()
        note_allocated(allocator.allocated_bytes)
        note_reserved(allocator.reserved_bytes)
        if curve.failed is not None:
            break  # the last event is the failed request: it got no memory, but the cache was given back
    return curve


def _moments(
    timeline: Timeline, played: Sequence[Event], curve: _Curve, chosen: Sequence[int]
) -> tuple[tuple[str, ...], list[Moment]]:
    """Return the categories and the chosen moments, with the memory of each category."""
    tags = timeline.tags
    numbers: dict[str, int] = {}
    of_tag = [numbers.setdefault(tag.category, len(numbers)) for tag in tags]
    totals = [0] * len(numbers)
    alive: dict[int, tuple[int, int]] = {}
    since: dict[int, list[int]] = {}  # tag → bytes and count since the last moment
    sizes = iter(curve.block_sizes)
    moments: list[Moment] = []
    start = 0
    for end in chosen:
        for action, tensor, _, _, tag in played[start : end + 1]:
            if action == _ALLOC:
                size = next(sizes)
                alive[tensor] = (of_tag[tag], size)
                totals[of_tag[tag]] += size
                counted = since.setdefault(tag, [0, 0])
                counted[0] += size
                counted[1] += 1
            elif action == _FREE:
                category, size = alive.pop(tensor)
                totals[category] -= size
        allocations = tuple(
            Allocation(tags[tag], size, times)
            for tag, (size, times) in nlargest(NAMED_ALLOCATIONS, since.items(), key=lambda item: item[1][0])
            if size
        )
        moments.append(Moment(end, curve.reserved[end], tuple(totals), allocations))
        since.clear()
        start = end + 1
    return tuple(numbers), moments


def _state_after(
    timeline: Timeline, allocator: CachingAllocator, until: int
) -> tuple[list[Allocation], list[SegmentBar]]:
    """Return what is alive after the first `until` events, by label, and the segments."""
    play = play_timeline(timeline, allocator, until)
    tag_of_tensor = {event[1]: event[4] for event in timeline.events[:until] if event[0] == _ALLOC}
    tag_of_block: dict[Block, Tag] = {}
    held: dict[Tag, list[int]] = {}
    for tensor, block in play.live.items():
        if block is not None:
            tag = tag_of_block[block] = timeline.tags[tag_of_tensor[tensor]]
            counted = held.setdefault(tag, [0, 0])
            counted[0] += block.size
            counted[1] += 1
    holdings = [Allocation(tag, size, times) for tag, (size, times) in held.items()]
    holdings.sort(key=lambda held: -held.size_bytes)
    return holdings, segment_bars(allocator, tag_of_block)


def _bound(allocator: CachingAllocator) -> int | None:
    """Return the lower of the allocator's capacity and limit, or None if neither is set."""
    lowest = min(allocator.limit_bytes, allocator.capacity_bytes)
    return lowest if lowest < UNLIMITED else None


# A change smaller than the peak divided by this is invisible, even in a tall chart.
_PIXELS = 2000
# This many invisible events weigh as much as one visible event.
_INVISIBLE_PER_VISIBLE = 50


def choose_moments(
    allocated: array[int], reserved: array[int], phase_starts: Sequence[int], stretches: int
) -> list[int]:
    """Return the chosen positions in ascending order, the first and the last included.

    In each stretch, these are where the most and the least are allocated and where the most is reserved.
    """
    if not allocated:
        return []
    chosen = {0, len(allocated) - 1}
    # with more phases than stretches, phases are too narrow to be visible
    bounds = phase_starts if len(phase_starts) <= stretches else ()
    for start, end in _stretches(allocated, reserved, bounds, stretches):
        part = allocated[start:end]
        highest = start + part.index(max(part))
        chosen.add(highest)
        chosen.add(start + part.index(min(part)))
        most_reserved = max(reserved[start:end])
        if reserved[highest] < most_reserved:
            at_most = (index for index in range(start, end) if reserved[index] == most_reserved)
            chosen.add(max(at_most, key=allocated.__getitem__))
    return sorted(chosen)


def _stretches(
    allocated: array[int], reserved: array[int], bounds: Sequence[int], count: int
) -> Iterator[tuple[int, int]]:
    """Cut the run into about `count` stretches of equal weight, and at the bounds."""
    weights = _weights(allocated, reserved)
    enough = max(1, -(-sum(weights) // count))
    starts = frozenset(bounds)
    start = weight = 0
    for index, own in enumerate(weights):
        if index > start and (weight + own > enough or index in starts):
            yield start, index
            start, weight = index, 0
        weight += own
    yield start, len(weights)


def _weights(allocated: array[int], reserved: array[int]) -> list[int]:
    visible = max(reserved) // _PIXELS + 1
    weights = []
    before_allocated = before_reserved = 0
    for now_allocated, now_reserved in zip(allocated, reserved, strict=True):
        seen = abs(now_allocated - before_allocated) >= visible or now_reserved != before_reserved
        weights.append(_INVISIBLE_PER_VISIBLE if seen else 1)
        before_allocated, before_reserved = now_allocated, now_reserved
    return weights
