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


class FreeBlocks:
    """All free blocks but the end of the mapped memory, where that begins (-1: there is none), and the gaps before it.

    Compared by value, and fast where it is the same object.
    """

    __slots__ = ("_hash", "_parts", "end_at", "keys")

    def __init__(self, keys: tuple[int, ...], end_at: int, gaps: tuple[tuple[int, int], ...]) -> None:
        self.keys = keys
        self.end_at = end_at
        self._parts = (keys, end_at, gaps)
        self._hash = hash(self._parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FreeBlocks) and self._hash == other._hash and self._parts == other._parts


# Free blocks with the size of the end, or as a list; gaps and segments.
SavedShelf = tuple[tuple[FreeBlocks, int] | list[int], dict[int, int], dict[int, int]]


class FlatShelf:
    """Free blocks by size and address, unmapped gaps and segments by address.

    `walked`: a request passed by the end of memory in the midst of a segment, or was served there. `larger`: tensors
    that got more than they asked for, because too little would have been left, and how much more.
    """

    __slots__ = (
        *("_behind", "_blocks", "ends", "gap_order", "gaps", "grow", "keys", "larger", "least", "segments", "small"),
        *("starts", "walked"),
    )

    def __init__(self, small: bool, expandable: bool, grow: Callable[[FlatShelf, int], int]) -> None:
        self.small = small
        self.grow: Grow = lambda wanted, _tensor: grow(self, wanted >> BITS)
        # where `blocks` was followed: the lists of free blocks are behind it
        self._blocks: tuple[FreeBlocks, int] | None = None
        self._behind = False
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
        if self._behind:
            self.settle()
        self._blocks = None
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

    def request(self, wanted: int) -> int:
        """The block of one request by itself: what `play` does, without a program."""
        if self._behind:
            self.settle()
        self._blocks = None
        keys = self.keys
        at = bisect_left(keys, wanted)
        if at == len(keys):
            return self.grow(wanted, 0)
        key = keys[at]
        end = (key & MASK) + (key >> BITS)
        if end in self.gaps and (at + 1 < len(keys) or end != self.gap_order[-1]):
            at = self._passing(at)
            key = keys[at]
            end = (key & MASK) + (key >> BITS)
        rest = key - wanted
        del keys[at], self.starts[key & MASK]
        if rest < self.least:
            del self.ends[end]
            return key
        rest += wanted >> BITS
        self.starts[rest & MASK] = self.ends[end] = rest
        insort(keys, rest, 0, at)
        return wanted | key & MASK

    def free(self, key: int) -> None:
        """Free one block."""
        if self._behind:
            self.settle()
        self._blocks = None
        keys = self.keys
        address = key & MASK
        end = address + (key >> BITS)
        after = self.starts.pop(end, 0)
        if after:
            del keys[bisect_left(keys, after)]
            key += after - end
        before = self.ends.pop(address, 0)
        if before:
            del keys[bisect_left(keys, before)]
            key += before - address
        address = key & MASK
        self.starts[address] = self.ends[address + (key >> BITS)] = key
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
        self._blocks = None

    def take(self, key: int) -> None:
        """Remove a free block."""
        address = key & MASK
        del self.keys[bisect_left(self.keys, key)], self.starts[address], self.ends[address + (key >> BITS)]
        self._blocks = None

    def merge(self, address: int, size: int) -> None:
        """Add a free block, one with its free neighbours."""
        self.free(size << BITS | address)

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

    def blocks(self) -> tuple[FreeBlocks, int]:
        """The free blocks, and the size of the end."""
        if self._blocks is None:
            self._blocks = self._find_blocks()
        return self._blocks

    def _find_blocks(self) -> tuple[FreeBlocks, int]:
        keys, order = self.keys, self.gap_order
        end = self.ends.get(order[-1], 0) if order else 0
        if not end or self.gaps[order[-1]] <= keys[-1] >> BITS:
            return FreeBlocks(tuple(keys), -1, tuple([(gap, self.gaps[gap]) for gap in order])), 0
        at = bisect_left(keys, end)
        gaps = tuple([(gap, self.gaps[gap]) for gap in order[:-1]])
        return FreeBlocks((*keys[:at], *keys[at + 1 :]), end & MASK, gaps), end >> BITS

    def follow(self, blocks: FreeBlocks, end_bytes: int) -> None:
        """These are the free blocks from now on; they are listed when somebody needs the lists."""
        self._blocks = (blocks, end_bytes)
        self._behind = True

    def settle(self) -> None:
        """List the free blocks."""
        if not self._behind or self._blocks is None:
            return
        found, end_bytes = self._blocks
        keys = list(found.keys)
        if end_bytes:
            insort(keys, end_bytes << BITS | found.end_at)
        self._replace_free(keys)

    def largest(self, count: int) -> tuple[int, ...]:
        """The sizes of the largest free blocks, the smallest of them first."""
        if not self._behind or self._blocks is None:
            return tuple([key >> BITS for key in self.keys[-count:]])
        found, end_bytes = self._blocks
        return tuple(sorted([*[key >> BITS for key in found.keys[-count:]], end_bytes])[-count:])

    def save(self) -> SavedShelf:
        """Free blocks, gaps and segments as they are."""
        blocks = self._blocks if self._behind and self._blocks is not None else self.keys[:]
        return blocks, self.gaps.copy(), self.segments.copy()

    def restore(
        self, blocks: tuple[FreeBlocks, int] | list[int], gaps: dict[int, int], segments: dict[int, int]
    ) -> None:
        """As they were."""
        if isinstance(blocks, list):
            self._blocks = None
            self._replace_free(blocks)
        else:
            self.follow(*blocks)
        self.gaps.clear()
        self.gaps.update(gaps)
        self.gap_order[:] = sorted(gaps)
        self.segments = segments

    def _replace_free(self, keys: list[int]) -> None:
        self._behind = False
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
        return self.blocks(), gaps, tuple(self.segments)
