"""Put an allocator into the initial state of a recording."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from vramwise.allocator import expandable
from vramwise.allocator.blocks import FREE, UNMAPPED, USED, WAITING, Block, Segment, link
from vramwise.allocator.caching import CachingAllocator
from vramwise.allocator.rounding import SMALL_SEGMENT
from vramwise.recordings.initial import InitialSegment
from vramwise.recordings.ranges import Range

Piece = tuple[int, int, int]  # start, end, state

# Where a plain segment of the recording is placed: (recorded address, size) → address.
Adopt = Callable[[int, int], int]


def restore(allocator: CachingAllocator, segments: Sequence[InitialSegment], adopt: Adopt) -> dict[int, Block]:
    """Recreate segments and blocks as they were; return the blocks in use by recorded address."""
    live: dict[int, Block] = {}
    for initial in segments:
        pool = allocator.small if initial.small else allocator.large
        shelf = pool.shelf(initial.stream)
        if initial.expandable:
            granule = SMALL_SEGMENT if initial.small else allocator.settings.large_segment_bytes
            length = max(expandable.range_length(allocator, granule), initial.mapped[-1][1] - initial.address)
            segment = Segment(initial.address, length, shelf, granule)
        else:
            start, end = initial.mapped[0]
            segment = Segment(adopt(start, end - start), end - start, shelf)
        allocator.segments[segment] = None
        allocator.reserve("", segment.address, initial.mapped_bytes, initial.stream)
        _fill(allocator, segment, initial, live)
    # There may be memory of the other growth mode now, which changes how free blocks are chosen.
    allocator.change_settings(allocator.settings)
    allocator.reset_peaks()
    return live


def _fill(allocator: CachingAllocator, segment: Segment, initial: InitialSegment, live: dict[int, Block]) -> None:
    """Lay out the blocks from the segment's start to its end: in use, free where mapped, unmapped elsewhere."""
    shelf = segment.shelf
    moved = segment.address - initial.address
    waiting = {block.address for block in initial.blocks if block.waiting}
    for start, end, state in _layout(initial, initial.address + segment.size):
        block = Block(start + moved, end - start, state, segment)
        link(block, segment.prev, segment)
        if state == WAITING:
            continue  # never freed
        if state == FREE:
            shelf.put(block)
        elif state == UNMAPPED:
            shelf.put_unmapped(block)
        else:
            live[start] = block
            allocator.allocated_bytes += block.size
            if start in waiting:
                allocator.hold(block)


def _layout(initial: InitialSegment, segment_end: int) -> list[Piece]:
    busy = [(block.address, block.address + block.size, USED) for block in initial.blocks]
    busy += [(start, end, WAITING) for start, end in initial.held]
    busy.sort()
    pieces: list[Piece] = []
    at = initial.address
    first = 0
    for start, end in initial.mapped:
        if at < start:
            pieces.append((at, start, UNMAPPED))
        last = bisect_left(busy, (end,))
        pieces += _mapped_layout((start, end), busy[first:last])
        at, first = end, last
    if at < segment_end:
        pieces.append((at, segment_end, UNMAPPED))
    return pieces


def _mapped_layout(mapped: Range, busy: Sequence[Piece]) -> list[Piece]:
    pieces: list[Piece] = []
    at, end = mapped
    for piece in busy:
        if at < piece[0]:
            pieces.append((at, piece[0], FREE))
        pieces.append(piece)
        at = piece[1]
    if at < end:
        pieces.append((at, end, FREE))
    return pieces


def allocate_anew(allocator: CachingAllocator, segments: Sequence[InitialSegment]) -> dict[int, Block]:
    """With other settings: allocate what was in use again, by address.

    A small segment without blocks gets one allocation that is freed again.
    """
    live: dict[int, Block] = {}
    for initial in segments:
        for recorded in initial.blocks:
            block = allocator.malloc(recorded.requested, initial.stream)
            if block is not None:
                live[recorded.address] = block
                if recorded.waiting:
                    allocator.hold(block)
        for start, end in initial.held:
            allocator.malloc(end - start, initial.stream)
        if initial.small and not initial.blocks and not initial.held:
            # A completely free small segment remains from torch's start-up; it would exist with any settings.
            block = allocator.malloc(1, initial.stream)
            if block is not None:
                allocator.free(block)
    return live
