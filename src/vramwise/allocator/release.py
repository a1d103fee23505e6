"""Returns memory to the driver: the whole cache, oversize blocks, or blocks that garbage collection finds old."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vramwise.allocator import expandable
from vramwise.allocator.blocks import AllocationError, Block, Pool, Shelf
from vramwise.allocator.settings import NO_SPLIT_LIMIT

if TYPE_CHECKING:
    from vramwise.allocator.caching import CachingAllocator


def release_all(allocator: CachingAllocator) -> None:
    """Wait for all streams, then return every completely free segment and granule to the driver."""
    allocator.complete_all()
    for pool in (allocator.large, allocator.small):
        for shelf in _by_stream(pool):
            for block in list(shelf.blocks):
                if block.segment.granule:
                    expandable.unmap_block(allocator, block)
                elif _is_whole_segment(block):
                    release_segment(allocator, block)


def release_segment(allocator: CachingAllocator, block: Block) -> None:
    """Return a plain segment that consists of one free block to the driver."""
    segment = block.segment
    segment.shelf.take(block)
    del allocator.segments[segment]
    allocator.places.give_back(segment.address, segment.size)
    allocator.reserve("segment_free", segment.address, -segment.size, segment.shelf.stream)


def release_oversize(allocator: CachingAllocator, shelf: Shelf, size: int) -> bool:
    """With a split limit, release the smallest oversize block that is large enough, else the largest ones in turn.

    Returns whether enough was released. Raises AllocationError where torch before 2.5 stops with an internal error.
    """
    max_split = allocator.settings.max_split_bytes
    if max_split >= NO_SPLIT_LIMIT:
        return False
    wanted = max(size, max_split)
    at = shelf.first_of(wanted)
    if at < len(shelf.blocks) and not shelf.blocks[at].segment.granule:
        release_segment(allocator, shelf.blocks[at])
        return True
    if allocator.torch < (2, 5) and any(block.segment.granule for block in shelf.blocks[shelf.first_of(max_split) :]):
        raise AllocationError(
            "torch before 2.5 stops with an internal error: max_split_size_mb meets expandable segments"
        )
    released = 0
    for block in reversed(shelf.blocks[:at]):
        if released >= wanted or block.size < max_split:
            break
        if not block.segment.granule:
            released += block.size
            release_segment(allocator, block)
    return released >= wanted


def collect_garbage(allocator: CachingAllocator) -> None:
    """If more than threshold × limit is reserved, release large segments free for the average time or longer."""
    pool = allocator.large
    threshold = int(allocator.settings.garbage_collection_threshold * allocator.limit_bytes)
    excess = allocator.reserved_bytes - threshold
    blocks = [block for shelf in _by_stream(pool) for block in shelf.blocks if _is_whole_segment(block)]
    total_age = sum(pool.searches - block.born for block in blocks)
    freed_some = True
    while excess > 0 and freed_some and blocks:
        average = total_age / len(blocks)
        old = [block for block in blocks if pool.searches - block.born >= average and not block.segment.granule]
        freed_some = bool(old)
        for block in old:
            blocks.remove(block)
            total_age -= pool.searches - block.born
            excess -= block.size
            release_segment(allocator, block)


def _by_stream(pool: Pool) -> list[Shelf]:
    return [shelf for _, shelf in sorted(pool.shelves.items())]


def _is_whole_segment(block: Block) -> bool:
    return block.prev is block.next is block.segment
