"""Lays out the allocator's memory: each segment is a bar of runs, which are either in use or holes.

Neighbouring blocks of the same category are merged into one run, so that a bar stays readable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from vramwise.allocator.blocks import UNMAPPED, USED, WAITING, Block, Segment
from vramwise.allocator.caching import CachingAllocator
from vramwise.timeline import Tag

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
