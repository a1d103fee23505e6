"""The free memory of one pool and one stream as plain numbers, without block objects.

Free neighbours are always merged, so the free blocks follow from those in use. A block is one number, a key, with its
size in the high bits and its address in the low bits. Free blocks are a sorted list of keys, also found by start and by
end. Addresses are twice the real ones, so that adjacent segments are not merged.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence

from vramwise.allocator.rounding import MIN_BLOCK, SMALL

BITS = 66
MASK = (1 << BITS) - 1

# Steps on a shelf: a request (its size, shifted) and the number of its tensor, or 0 and the tensor that is freed.
Program = Sequence[tuple[int, int]]
# Serves a request that finds no block, given its size (shifted) and the number of its tensor.
Grow = Callable[[int, int], int]


class FreeBlocks:
    """All free blocks except the one at the end of the mapped memory, its address, and the gaps before it.

    `end_at` is -1 if there is no such block. Compared by value, with a stored hash.
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


# The free blocks (as a list, or as `FreeBlocks` with the size of the end block), the gaps and the segments.
SavedShelf = tuple[tuple[FreeBlocks, int] | list[int], dict[int, int], dict[int, int]]


class FlatShelf:
    """Free blocks by size and address, and unmapped gaps and segments by address.

    `walked`: a search passed a free block that can grow, other than the end block, or moved on to one that can grow.
    `larger`: tensors that got more than they requested, because the rest was too small to split off, and how much more.
    """

    __slots__ = (
        *("_behind", "_blocks", "ends", "gap_order", "gaps", "grow", "keys", "larger", "least", "segments", "small"),
        *("starts", "walked"),
    )

    def __init__(self, small: bool, expandable: bool, grow: Callable[[FlatShelf, int], int]) -> None:
        self.small = small
        self.grow: Grow = lambda wanted, _tensor: grow(self, wanted >> BITS)
        # the result of `blocks`; after `follow`, the lists of free blocks are out of date (`_behind`)
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
        # the smallest rest, shifted, for which a block is split
        self.least = MIN_BLOCK << BITS if small or expandable else (SMALL + MIN_BLOCK) << BITS

    def play(self, program: Program, own: dict[int, int], grow: Grow) -> None:
        """Play a program. `own`: the blocks in use by tensor number, which is updated."""
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
                # the largest block, if it is at the end of the last range, has no alternative
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
        """Serve a single request as `play` does, and return its block."""
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
        """Return the position of the block to use. The size of a block that can grow includes the room to grow.

        Such blocks are therefore used last.
        """
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
        """Add a free block and merge it with its free neighbours."""
        self.free(size << BITS | address)

    def divide(self, key: int, size: int) -> int:
        """Return the part of a block that a request of this size gets. The rest becomes free.

        The request gets the whole block if the rest is too small.
        """
        rest = key - (size << BITS)
        if rest < self.least:
            return key
        self.put(rest + size)
        return size << BITS | key & MASK

    def add_gap(self, address: int, size: int) -> None:
        """Add an unmapped range."""
        self.gaps[address] = size
        insort(self.gap_order, address)

    def remove_gap(self, address: int) -> int:
        """Remove an unmapped range and return its size."""
        del self.gap_order[bisect_left(self.gap_order, address)]
        return self.gaps.pop(address)

    def blocks(self) -> tuple[FreeBlocks, int]:
        """Return the free blocks, and the size of the block at the end of the mapped memory (0 if there is none)."""
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
        """Replace the free blocks. The lists are updated by `settle`, when they are needed."""
        self._blocks = (blocks, end_bytes)
        self._behind = True

    def settle(self) -> None:
        """Update the lists of free blocks after `follow`."""
        if not self._behind or self._blocks is None:
            return
        found, end_bytes = self._blocks
        keys = list(found.keys)
        if end_bytes:
            insort(keys, end_bytes << BITS | found.end_at)
        self._replace_free(keys)

    def largest(self, count: int) -> tuple[int, ...]:
        """Return the sizes of the `count` largest free blocks in ascending order."""
        if not self._behind or self._blocks is None:
            return tuple([key >> BITS for key in self.keys[-count:]])
        found, end_bytes = self._blocks
        return tuple(sorted([*[key >> BITS for key in found.keys[-count:]], end_bytes])[-count:])

    def save(self) -> SavedShelf:
        """Return the free blocks, gaps and segments for `restore`."""
        blocks = self._blocks if self._behind and self._blocks is not None else self.keys[:]
        return blocks, self.gaps.copy(), self.segments.copy()

    def restore(
        self, blocks: tuple[FreeBlocks, int] | list[int], gaps: dict[int, int], segments: dict[int, int]
    ) -> None:
        """Restore the saved free blocks, gaps and segments."""
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
        """Return everything that determines how requests are served."""
        gaps = tuple([(address, self.gaps[address]) for address in self.gap_order])
        return self.blocks(), gaps, tuple(self.segments)
