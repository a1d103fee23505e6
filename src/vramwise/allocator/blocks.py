"""The allocator's state: blocks, segments, and the shelves of free blocks.

Independent of settings, versions and the driver. For speed, a shelf keeps a sorted list of integer keys beside the
list of its blocks, so that finding the best fit is one `bisect` over plain integers.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

# States of a block. EDGE marks the segment itself, which closes the ring of its blocks. Every block therefore has two
# neighbours, and no neighbour is None.
FREE: Final = 0
USED: Final = 1
WAITING: Final = 2  # freed by the program, still in use on another stream
UNMAPPED: Final = 3  # address space of an expandable segment without memory behind it
EDGE: Final = 4

# Free blocks are ordered by size, then address, combined in one integer with the size in the high bits. CUDA addresses
# have 47 bits. Runs too large for any GPU are simulated too, to report their size; they use addresses above those.
ADDRESS_BITS: Final = 64


class AllocationError(Exception):
    """A request cannot be served, even after all free memory was returned to the driver."""


class Block:
    """A part of a segment. `born`: the pool's search count when it became free, used for garbage collection."""

    __slots__ = ("address", "born", "next", "prev", "segment", "size", "state")

    prev: Block
    next: Block
    born: int

    def __init__(self, address: int, size: int, state: int, segment: Segment) -> None:
        self.address = address
        self.size = size
        self.state = state
        self.segment = segment


class Segment(Block):
    """Memory (if expandable, address space) taken from the driver in one piece. It closes the ring of its blocks."""

    __slots__ = ("granule", "shelf")

    def __init__(self, address: int, size: int, shelf: Shelf, granule: int = 0) -> None:
        super().__init__(address, size, EDGE, self)
        self.shelf = shelf
        self.granule = granule  # bytes mapped at a time; 0 for a plain segment
        self.prev = self.next = self

    def blocks(self) -> list[Block]:
        """Return its blocks in order of address."""
        found = []
        block = self.next
        while block is not self:
            found.append(block)
            block = block.next
        return found


class Shelf:
    """The free blocks of one pool and one stream by (size, address), and its unmapped address ranges by address."""

    __slots__ = ("blocks", "keys", "pool", "stream", "unmapped")

    def __init__(self, pool: Pool, stream: int) -> None:
        self.pool = pool
        self.stream = stream
        self.keys: list[int] = []
        self.blocks: list[Block] = []
        self.unmapped: list[Block] = []

    def put(self, block: Block) -> None:
        """Add a free block."""
        block.state = FREE
        block.born = self.pool.searches
        key = block.size << ADDRESS_BITS | block.address
        at = bisect_left(self.keys, key)
        self.keys.insert(at, key)
        self.blocks.insert(at, block)

    def take(self, block: Block) -> None:
        """Remove a free block."""
        at = bisect_left(self.keys, block.size << ADDRESS_BITS | block.address)
        del self.keys[at]
        del self.blocks[at]

    def put_unmapped(self, block: Block) -> None:
        """Add an unmapped range without merging it."""
        block.state = UNMAPPED
        self.unmapped.insert(bisect_left(self.unmapped, block.address, key=_address), block)

    def take_unmapped(self, block: Block) -> None:
        """Remove an unmapped range."""
        del self.unmapped[bisect_left(self.unmapped, block.address, key=_address)]

    def first_of(self, size: int) -> int:
        """Return the position of the smallest free block of at least this size."""
        return bisect_left(self.keys, size << ADDRESS_BITS)


class Pool:
    """The small or the large pool, with a shelf for each stream. `searches` is the clock of garbage collection."""

    __slots__ = ("searches", "shelves", "small")

    def __init__(self, small: bool) -> None:
        self.small = small
        self.shelves: dict[int, Shelf] = {}
        self.searches = 0

    def shelf(self, stream: int) -> Shelf:
        """Return the stream's shelf. It is created on first use."""
        shelf = self.shelves.get(stream)
        if shelf is None:
            shelf = self.shelves[stream] = Shelf(self, stream)
        return shelf


def _address(block: Block) -> int:
    return block.address


def link(block: Block, before: Block, after: Block) -> None:
    """Put a block between two neighbours."""
    block.prev, block.next = before, after
    before.next = after.prev = block


def swallow_previous(block: Block) -> None:
    """Merge the previous neighbour into a block."""
    gone = block.prev
    block.address = gone.address
    block.size += gone.size
    block.prev = gone.prev
    gone.prev.next = block


def swallow_next(block: Block) -> None:
    """Merge the next neighbour into a block."""
    gone = block.next
    block.size += gone.size
    block.next = gone.next
    gone.next.prev = block
