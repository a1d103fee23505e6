"""Reconstruct what the allocator held when a recording began, from the segments at its end and the events between.

A recording rarely begins with an empty allocator, and a full ring buffer has dropped its oldest events. Memory that no
event touched was there from the start, and so was memory whose first event is a free. Two things are in no file: how
far a block in use extended beyond its request if the allocator did not split it (see `_true_end`), and address space
that an expandable segment had unmapped before.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from vramwise.allocator.rounding import SMALL, SMALL_SEGMENT, round_request
from vramwise.allocator.settings import AllocatorSettings, TorchVersion
from vramwise.recordings.ranges import Range, RangeSet
from vramwise.recordings.recording import (
    ALLOC,
    FREE_COMPLETED,
    OUT_OF_MEMORY,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    RecordedBlock,
    RecordedEvent,
    Recording,
)


@dataclass(slots=True, kw_only=True)
class InitialSegment:
    """A segment at the start: its mapped ranges (one, if plain) and the blocks in use, by address."""

    address: int
    small: bool
    stream: int
    expandable: bool
    mapped: list[Range]
    blocks: list[RecordedBlock] = field(default_factory=list)
    held: list[Range] = field(default_factory=list)  # assumed to be in use, owner unknown

    @property
    def mapped_bytes(self) -> int:
        """The number of mapped bytes."""
        return sum(end - start for start, end in self.mapped)


def initial_segments(recording: Recording, settings: AllocatorSettings, torch: TorchVersion) -> list[InitialSegment]:
    """Return the segments at the start of a recording, by address."""
    segments = _plain_segments(recording) + _expandable_segments(recording)
    segments.sort(key=lambda segment: segment.address)
    blocks, first_allocs = _first_touched(recording, settings, torch)
    _place_blocks(segments, blocks)
    if blocks and any(segment.blocks is None for segment in recording.segments):
        _hold_untouched_memory(segments, recording, settings, torch)
    for segment in segments:
        if segment.blocks and not segment.expandable and not segment.small:
            _extend_unsplit_blocks(segment, settings, first_allocs)
    return segments


def _plain_segments(recording: Recording) -> list[InitialSegment]:
    untouched = {segment.address: segment for segment in recording.segments if not segment.expandable}
    touched: set[int] = set()
    found = []
    for action, address, size, stream in map(recording.events.rows.__getitem__, recording.events.landmarks):
        if action in (SEGMENT_ALLOC, SEGMENT_FREE) and address not in touched:
            touched.add(address)
            untouched.pop(address, None)
            if action == SEGMENT_FREE:
                # Plain segments of the large pool have at least 10 MiB.
                found.append((address, size, size <= SMALL_SEGMENT, stream))
    found += [(segment.address, segment.size, segment.small, segment.stream) for segment in untouched.values()]
    return [
        InitialSegment(
            address=address, small=small, stream=stream, expandable=False, mapped=[(address, address + size)]
        )
        for address, size, small, stream in found
    ]


_Group = tuple[bool, int]  # small pool?, stream: each pair has its own expandable segment


class _Mapped:
    """The mapped memory of expandable segments by group, and the addresses seen in each group."""

    def __init__(self) -> None:
        self.ranges: dict[_Group, RangeSet] = {}
        self._seen: dict[_Group, list[int]] = {}

    def see(self, group: _Group, address: int) -> RangeSet:
        """Note that an address belongs to a group; return the group's mapped memory."""
        insort(self._seen.setdefault(group, []), address)
        return self.ranges.setdefault(group, RangeSet())

    def lowest(self, group: _Group) -> int:
        """Return the lowest address seen: the start of the segment, as far as the recording shows."""
        return self._seen[group][0]

    def nearest_group(self, address: int, stream: int) -> _Group:
        """Return the group of an address on this stream: segments are far apart, so the one seen nearest."""
        groups = [group for group in ((True, stream), (False, stream)) if group in self._seen]
        return min(groups, key=lambda group: self._distance(group, address), default=(False, stream))

    def _distance(self, group: _Group, address: int) -> int:
        seen = self._seen[group]
        at = bisect_right(seen, address)
        return min(abs(address - near) for near in seen[max(at - 1, 0) : at + 1])


def _expandable_segments(recording: Recording) -> list[InitialSegment]:
    """Return the expandable segments, by going back from the memory mapped at the end."""
    mapped = _Mapped()
    for segment in recording.segments:
        if segment.expandable:
            group = (segment.small, segment.stream)
            mapped.see(group, segment.address).add(segment.address, segment.address + segment.size)
    rows, landmarks = recording.events.rows, recording.events.landmarks
    steps: list[tuple[_Group | None, int, int, int]] = []
    small, seen_to = False, len(rows)
    for index in reversed(landmarks):
        action, address, size, stream = rows[index]
        # After the next landmark the answer is already known.
        small, seen_to = _pool_of_growth(rows, index, seen_to, small), index
        if action == SEGMENT_MAP:
            group = (small, stream)
            mapped.see(group, address)
            steps.append((group, address, size, stream))
        elif action == SEGMENT_UNMAP:
            steps.append((None, address, size, stream))
    for known_group, address, size, stream in steps:
        if known_group is not None:
            mapped.ranges[known_group].remove(address, address + size)
        else:
            group = mapped.nearest_group(address, stream)
            mapped.see(group, address).add(address, address + size)
    return [
        InitialSegment(
            address=mapped.lowest(group), small=group[0], stream=group[1], expandable=True, mapped=list(ranges)
        )
        for group, ranges in mapped.ranges.items()
        if ranges
    ]


def _pool_of_growth(rows: Sequence[RecordedEvent], index: int, end: int, otherwise: bool) -> bool:
    """Return whether memory was mapped for the small pool, judging by the request that follows."""
    for at in range(index + 1, min(end + 1, len(rows))):
        action, _, size, _ = rows[at]
        if action in (ALLOC, OUT_OF_MEMORY):
            return size <= SMALL
    return otherwise


def _first_touched(
    recording: Recording, settings: AllocatorSettings, torch: TorchVersion
) -> tuple[list[RecordedBlock], list[int]]:
    """Return the blocks in use at the start, and the addresses whose first event is an allocation, sorted.

    The size of a block that was freed since is not recorded: it is assumed to be the rounded request.
    """
    first: dict[int, RecordedEvent] = {}
    for event in recording.events.rows:
        if event[1] not in first and event[0] <= FREE_COMPLETED:
            first[event[1]] = event
    blocks = [
        RecordedBlock(address, round_request(size, settings, torch), size, action == FREE_COMPLETED)
        for action, address, size, _ in first.values()
        if action != ALLOC
    ]
    for segment in recording.segments:
        blocks += [block for block in segment.blocks or () if block.address not in first]
    return sorted(blocks), sorted(address for address, event in first.items() if event[0] == ALLOC)


def _place_blocks(segments: list[InitialSegment], blocks: list[RecordedBlock]) -> None:
    """Assign the blocks to their segments.

    Blocks that fit nowhere or overlap are flaws of the recording and skipped.
    """
    ranges = [(start, end, segment) for segment in segments for start, end in segment.mapped]
    ranges.sort(key=lambda item: item[0])
    addresses = [start for start, _, _ in ranges]
    end_of_last = 0
    for block in blocks:
        at = bisect_right(addresses, block.address) - 1
        if at < 0 or block.address < end_of_last:
            continue
        _, end, segment = ranges[at]
        if block.address < end and block.address + block.size <= end:
            segment.blocks.append(block)
            end_of_last = block.address + block.size


def _hold_untouched_memory(
    segments: list[InitialSegment], recording: Recording, settings: AllocatorSettings, torch: TorchVersion
) -> None:
    """Treat memory that no event touched as in use, if the file names no blocks.

    Nothing was served from there and none of it was released, so the recording is consistent with that.
    """
    touched = RangeSet()
    sizes: dict[int, int] = {}
    for action, address, size, _ in recording.events.rows:
        if action == ALLOC:
            sizes[address] = max(size, sizes.get(address, 0))
        elif action in (SEGMENT_FREE, SEGMENT_UNMAP):
            touched.add(address, address + size)
    for address, size in sizes.items():
        touched.add(address, address + round_request(size, settings, torch))
    for segment in segments:
        for block in segment.blocks:
            touched.add(block.address, block.address + block.size)
        segment.held = [hole for mapped in segment.mapped for hole in touched.holes(*mapped)]


def _extend_unsplit_blocks(segment: InitialSegment, settings: AllocatorSettings, first_allocs: list[int]) -> None:
    """Extend blocks of a plain large segment: up to 1 MiB beyond a request is not split off."""
    segment_end = segment.mapped[0][1]
    for at, block in enumerate(segment.blocks):
        following = segment.blocks[at + 1].address if at + 1 < len(segment.blocks) else segment_end
        end = _true_end(block, following, settings, first_allocs)
        segment.blocks[at] = block._replace(size=end - block.address)


def _true_end(block: RecordedBlock, following: int, settings: AllocatorSettings, first_allocs: list[int]) -> int:
    """Return where a block ends, given the start of the next block in use (or the segment's end).

    A gap of up to 1 MiB cannot be a free block, so it belongs to the block; so does any gap if the block is too large
    to be split. A larger gap contains a free block, and the first request served from it begins at the block's end.
    """
    end = block.address + block.size
    if following - end <= SMALL or block.size >= settings.max_split_bytes:
        return following
    at = bisect_right(first_allocs, end - 1)
    if at < len(first_allocs) and first_allocs[at] <= end + SMALL and first_allocs[at] < following:
        return first_allocs[at]
    return end
