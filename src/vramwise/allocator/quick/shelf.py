"""The free memory of one pool and one stream as plain numbers: no blocks, no links between them.

Which blocks are free follows from which are in use: free neighbours are always one block. So a block in use is one
number (its size above its address), and the free ones are a sorted list of such numbers, found by start and by end.
Addresses are twice the true ones: segments that touch stay apart.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence

from vramwise.allocator.rounding import MIN_BLOCK, SMALL

BITS = 66
MASK = (1 << BITS) - 1

# What is done to a shelf: a request (its size, shifted) and the number of its tensor, or 0 and what is freed.
Program = Sequence[tuple[int, int]]
# Serves a request that finds no block: (its size, shifted, and the number of its tensor)
Grow = Callable[[int, int], int]
SavedShelf = tuple[list[int], dict[int, int], dict[int, int]]


class FlatShelf:
    """Free blocks by size and address, unmapped gaps and segments by address.

    `walked`: a request passed by the end of memory in the midst of a segment, or was served there. `larger`: tensors
    that got more than they asked for, because too little would have been left, and how much more.
    """

    __slots__ = (
        "ends",
        "gap_order",
        "gaps",
        "grow",
        "keys",
        "larger",
        "least",
        "segments",
        "small",
        "starts",
        "walked",
    )

    def __init__(self, small: bool, expandable: bool, grow: Callable[[FlatShelf, int], int]) -> None:
        self.small = small
        self.grow: Grow = lambda wanted, _tensor: grow(self, wanted >> BITS)
        self.keys: list[int] = []
        self.starts: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.gaps: dict[int, int] = {}
        self.gap_order: list[int] = []
        self.segments: dict[int, int] = {}
        self.walked = False
        self.larger: list[tuple[int, int]] = []
        # what must be left for a block to be divided
        self.least = MIN_BLOCK << BITS if small or expandable else (SMALL + MIN_BLOCK) << BITS

    def play(self, program: Program, own: dict[int, int], grow: Grow) -> None:
        """Do all of it. `own`: blocks in use by number."""
        keys, starts, ends, gaps, least = self.keys, self.starts, self.ends, self.gaps, self.least
        for wanted, tensor in program:
            if wanted:
                at = bisect_left(keys, wanted)
                if at == len(keys):
                    own[tensor] = grow(wanted, tensor)
                    continue
                key = keys[at]
                address = key & MASK
                end = address + (key >> BITS)
                # the last of all blocks, at the end of the last range, is passed by only where there is another
                if end in gaps and (at + 1 < len(keys) or end != self.gap_order[-1]):
                    at = self._passing(at)
                    key = keys[at]
                    address = key & MASK
                    end = address + (key >> BITS)
                rest = key - wanted
                if rest >= least:
                    # the request gets the low addresses
                    size = wanted >> BITS
                    rest += size
                    del starts[address]
                    starts[address + size] = ends[end] = rest
                    if at and keys[at - 1] > rest:
                        del keys[at]
                        insort(keys, rest, 0, at)
                    else:
                        keys[at] = rest
                    own[tensor] = wanted + address
                else:
                    del keys[at], starts[address], ends[end]
                    own[tensor] = key
                    if rest >> BITS:
                        self.larger.append((tensor, rest >> BITS))
            else:
                key = own.pop(tensor)
                address = key & MASK
                end = address + (key >> BITS)
                after = starts.pop(end, 0)
                if after:
                    del keys[bisect_left(keys, after)]
                    key += after - end
                before = ends.pop(address, 0)
                if before:
                    del keys[bisect_left(keys, before)]
                    key += before - address
                    address = before & MASK
                starts[address] = ends[address + (key >> BITS)] = key
                insort(keys, key)

    def _passing(self, at: int) -> int:
        """The block to take: one that can grow counts with what it can grow to, so that it is used late."""
        keys, gaps = self.keys, self.gaps
        key = keys[at]
        gap_at = (key & MASK) + (key >> BITS)
        room = (key >> BITS) + gaps[gap_at]
        self.walked = self.walked or gap_at != self.gap_order[-1]
        while at + 1 < len(keys):
            key = keys[at + 1]
            gap_at = (key & MASK) + (key >> BITS)
            following = (key >> BITS) + gaps.get(gap_at, 0)
            if following >= room:
                break
            self.walked = self.walked or gap_at in gaps
            at, room = at + 1, following
        return at

    def put(self, key: int) -> None:
        """Add a free block that has no free neighbours."""
        address = key & MASK
        self.starts[address] = self.ends[address + (key >> BITS)] = key
        insort(self.keys, key)

    def take(self, key: int) -> None:
        """Remove a free block."""
        address = key & MASK
        del self.keys[bisect_left(self.keys, key)], self.starts[address], self.ends[address + (key >> BITS)]

    def merge(self, address: int, size: int) -> None:
        """Add a free block, one with its free neighbours."""
        self.play([(0, 0)], {0: size << BITS | address}, self.grow)

    def divide(self, key: int, size: int) -> int:
        """The block of which a request of this size gets its part, or all of it; the rest becomes free."""
        rest = key - (size << BITS)
        if rest < self.least:
            return key
        self.put(rest + size)
        return size << BITS | key & MASK

    def add_gap(self, address: int, size: int) -> None:
        """A range without memory."""
        self.gaps[address] = size
        insort(self.gap_order, address)

    def remove_gap(self, address: int) -> int:
        """It has memory now; returns its size."""
        del self.gap_order[bisect_left(self.gap_order, address)]
        return self.gaps.pop(address)

    def save(self) -> SavedShelf:
        """Free blocks, gaps and segments as they are."""
        return self.keys[:], self.gaps.copy(), self.segments.copy()

    def restore(self, keys: list[int], gaps: dict[int, int], segments: dict[int, int]) -> None:
        """As they were."""
        self.replace_free(keys)
        self.gaps.clear()
        self.gaps.update(gaps)
        self.gap_order[:] = sorted(gaps)
        self.segments = segments

    def replace_free(self, keys: list[int]) -> None:
        """These are the free blocks."""
        self.keys[:] = keys
        starts, ends = self.starts, self.ends
        starts.clear()
        ends.clear()
        for key in keys:
            address = key & MASK
            starts[address] = ends[address + (key >> BITS)] = key

    def state(self) -> tuple[object, ...]:
        """All that decides what it will do."""
        gaps = tuple([(address, self.gaps[address]) for address in self.gap_order])
        return tuple(self.keys), gaps, tuple(self.segments)
