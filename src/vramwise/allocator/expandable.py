"""Expandable segments: one address range per pool and stream, in which memory is mapped and unmapped in granules.

Turns a run of free and unmapped blocks into one block, and unmaps the granules of a free block. The allocator decides
when to do so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from vramwise.allocator.blocks import (
    FREE,
    UNMAPPED,
    USED,
    Block,
    Segment,
    Shelf,
    link,
    swallow_next,
    swallow_previous,
)
from vramwise.allocator.rounding import SMALL_SEGMENT

if TYPE_CHECKING:
    from vramwise.allocator.caching import CachingAllocator

# Address space of a segment if the GPU's memory size is not known.
UNKNOWN_TOTAL = 1 << 39
# Any address works if no plain segment is placed there.
_FIRST_ADDRESS = 1 << 42
_SPAN = 1 << 45
# For further ranges, and for requests that no GPU could serve. Addresses are reused once this span is full.
_FAR_ADDRESS = 1 << 62
_FAR_SPAN = 1 << 62


class Ranges(Protocol):
    """Counts the address ranges handed out so far, and the bytes of those placed far above the others."""

    total_bytes: int | None
    ranges: int
    far_bytes: int


def room(block: Block) -> int:
    """Return the size of a free block, including the unmapped range after it."""
    following = block.next
    return block.size + following.size if following.state == UNMAPPED else block.size


def grow(allocator: CachingAllocator, shelf: Shelf, size: int) -> Block | None:
    """Map the memory missing for a block of this size and return the block, removed from the shelf.

    Returns None if the GPU has no more memory.
    """
    block = _run_with_room(shelf, size)
    if block is None:
        block = new_segment(allocator, shelf, size).next
    if block.state == UNMAPPED and not map_block(allocator, block, min(block.size, size)):
        return None
    while block.size < size:
        block = block.next
        if not map_block(allocator, block, min(size - block.prev.size, block.size)):
            return None
    shelf.take(block)
    block.state = USED
    return block


def _run_with_room(shelf: Shelf, size: int) -> Block | None:
    """Return the first block of the lowest run of free and unmapped blocks that is large enough, or None."""
    for unmapped in shelf.unmapped:
        start = unmapped.prev if unmapped.prev.state == FREE else unmapped
        block, found = start, 0
        while found < size and block.state in (FREE, UNMAPPED):
            found += block.size
            block = block.next
        if found >= size:
            return start
    return None


def new_segment(allocator: CachingAllocator, shelf: Shelf, size: int = 0) -> Segment:
    """Create a segment with a new address range, an eighth larger than the GPU's memory and entirely unmapped.

    The range is larger if the request of `size` bytes needs it.
    """
    granule = SMALL_SEGMENT if shelf.pool.small else allocator.settings.large_segment_bytes
    address, length = take_range(allocator, granule, size)
    segment = Segment(address, length, shelf, granule)
    allocator.segments[segment] = None
    block = Block(address, length, UNMAPPED, segment)
    link(block, segment, segment)
    shelf.put_unmapped(block)
    return segment


def take_range(allocator: Ranges, granule: int, size: int) -> tuple[int, int]:
    """Return the start and the length of the next address range."""
    length = range_length(allocator, granule)
    near = allocator.ranges * length
    address = _FIRST_ADDRESS + near
    if size > length or near + length > _SPAN:
        length = max(length, -(-size // granule) * granule)
        address = _FAR_ADDRESS + allocator.far_bytes % _FAR_SPAN
        allocator.far_bytes += length
    allocator.ranges += 1
    return address, length


def range_length(allocator: Ranges, granule: int) -> int:
    """Return the usual size of a segment's address space, in bytes, rounded up to whole granules."""
    total = allocator.total_bytes or UNKNOWN_TOTAL
    return -(-(total + total // 8) // granule) * granule


def map_block(allocator: CachingAllocator, block: Block, size: int) -> bool:
    """Map the start of an unmapped block, merge it with its free neighbours and shelve the result.

    Returns False, and changes nothing, if the GPU has no more memory.
    """
    segment = block.segment
    shelf, granule = segment.shelf, segment.granule
    mapped = -(-size // granule) * granule
    if allocator.reserved_bytes + mapped > allocator.capacity_bytes:
        return False
    shelf.take_unmapped(block)
    address = block.address
    if mapped < block.size:
        rest = Block(address + mapped, block.size - mapped, UNMAPPED, segment)
        link(rest, block, block.next)
        shelf.put_unmapped(rest)
        block.size = mapped
    for swallow, neighbour in ((swallow_previous, block.prev), (swallow_next, block.next)):
        if neighbour.state == FREE:
            shelf.take(neighbour)
            swallow(block)
    shelf.put(block)
    allocator.reserve("segment_map", address, mapped, shelf.stream)
    return True


def unmap_block(allocator: CachingAllocator, block: Block) -> None:
    """Unmap the granules that lie completely inside a free block. What is left on either side stays free."""
    segment = block.segment
    shelf, granule = segment.shelf, segment.granule
    base, end = segment.address, block.address + block.size
    low = base + -(-(block.address - base) // granule) * granule
    high = base + (end - base) // granule * granule
    if low >= high:
        return
    shelf.take(block)
    for address, size, before in ((block.address, low - block.address, True), (high, end - high, False)):
        if size:
            kept = Block(address, size, FREE, segment)
            link(kept, *((block.prev, block) if before else (block, block.next)))
            shelf.put(kept)
    block.address, block.size, block.state = low, high - low, UNMAPPED
    for swallow, neighbour in ((swallow_previous, block.prev), (swallow_next, block.next)):
        if neighbour.state == UNMAPPED:
            shelf.take_unmapped(neighbour)
            swallow(block)
    shelf.put_unmapped(block)
    allocator.reserve("segment_unmap", low, low - high, shelf.stream)
    if block.prev is block.next is segment:
        shelf.take_unmapped(block)
        del allocator.segments[segment]
