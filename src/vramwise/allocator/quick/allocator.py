"""One device's allocator over flat shelves: takes memory from the driver and returns it.

Does what `caching`, `expandable` and `release` do, for settings under which the first block that fits is taken.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from copy import deepcopy

from vramwise.allocator.blocks import AllocationError
from vramwise.allocator.caching import CachingAllocator
from vramwise.allocator.driver import Places
from vramwise.allocator.expandable import take_range
from vramwise.allocator.quick.shelf import BITS, MASK, FlatShelf, SavedShelf
from vramwise.allocator.rounding import SMALL_SEGMENT, segment_size

_Saved = tuple[tuple[int, int, int, int], SavedShelf, SavedShelf]


class FlatAllocator:
    """An allocator on flat shelves, created from a `CachingAllocator` that has not been used yet."""

    collects = False

    def __init__(self, fresh: CachingAllocator) -> None:
        self.settings = fresh.settings
        self.expandable = fresh.settings.expandable_segments
        self.total_bytes = fresh.total_bytes
        self.limit_bytes = fresh.limit_bytes
        self.capacity_bytes = fresh.capacity_bytes
        self.ranges = self.far_bytes = 0
        self.allocated_bytes = self.reserved_bytes = 0
        self.peak_allocated_bytes = self.peak_reserved_bytes = 0
        self.retries = 0
        self.careful = False
        self.small = FlatShelf(True, self.expandable, self.grow)
        self.large = FlatShelf(False, self.expandable, self.grow)
        self._places = fresh.places
        self._places_before: Places | None = None
        self._shelves = {(False, 0): self.large, (True, 0): self.small}

    def shelf(self, small: bool, stream: int) -> FlatShelf:
        """Return the shelf of a pool and a stream. It is created on first use."""
        if (small, stream) not in self._shelves:
            self._shelves[small, stream] = FlatShelf(small, self.expandable, self.grow)
        return self._shelves[small, stream]

    def reset_peaks(self) -> None:
        """Reset the peaks to the current values."""
        self.peak_allocated_bytes = self.allocated_bytes
        self.peak_reserved_bytes = self.reserved_bytes

    def room(self) -> int:
        """Return how many more bytes can be reserved."""
        return min(self.limit_bytes, self.capacity_bytes) - self.reserved_bytes

    def state(self) -> tuple[object, ...]:
        """Return everything that determines how requests are served."""
        return self.reserved_bytes, self.ranges, tuple([shelf.state() for shelf in self._shelves.values()])

    def save(self) -> _Saved:
        """Return the state without the shelves of other streams, and set `careful`.

        While `careful` is set, a request that needs memory to be given back fails instead.
        """
        self.careful = True
        self._places_before = None
        counts = (self.reserved_bytes, self.peak_reserved_bytes, self.ranges, self.far_bytes)
        return counts, self.small.save(), self.large.save()

    def restore(self, saved: _Saved) -> None:
        """Restore the saved state and clear `careful`."""
        self.careful = False
        self.reserved_bytes, self.peak_reserved_bytes, self.ranges, self.far_bytes = saved[0]
        self.small.restore(*saved[1])
        self.large.restore(*saved[2])
        self._places = self._places_before or self._places

    def grow(self, shelf: FlatShelf, size: int) -> int:
        """Return a block of new memory, after returning free memory to the driver if needed.

        Raises AllocationError if there is not enough memory, or if memory must be given back while `careful` is set.
        """
        key = self._grow(shelf, size)
        if not key and self.careful:
            raise AllocationError("no memory without giving some back")
        if not key:
            self.empty_cache()
            self.retries += 1
            key = self._grow(shelf, size)
        if not key:
            raise AllocationError(f"out of memory: {size} bytes requested, {self.reserved_bytes} reserved")
        return shelf.divide(key, size)

    def _grow(self, shelf: FlatShelf, size: int) -> int:
        new_bytes = segment_size(size, self.settings)
        if self.reserved_bytes + new_bytes > self.limit_bytes:
            return 0
        if self.expandable:
            return self._map(shelf, size)
        if self.reserved_bytes + new_bytes > self.capacity_bytes:
            return 0
        if self.careful and self._places_before is None:
            self._places_before = deepcopy(self._places)
        address = 2 * self._places.take(new_bytes)
        shelf.segments[address] = new_bytes
        self._reserve(new_bytes)
        return new_bytes << BITS | address

    def _reserve(self, size: int) -> None:
        self.reserved_bytes += size
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)

    def _map(self, shelf: FlatShelf, size: int) -> int:
        """Map the lowest run of free and unmapped ranges that is long enough. Returns 0 if no memory is left."""
        address = _run_with_room(shelf, size)
        if address < 0:
            granule = self._granule(shelf)
            address, length = take_range(self, granule, size)
            address *= 2
            shelf.segments[address] = length
            shelf.add_gap(address, length)
        found = shelf.starts.get(address, 0) >> BITS
        while found < size:
            gap = shelf.gaps[address + found]
            if not self._map_gap(shelf, address + found, min(size - found, gap)):
                return 0
            found = shelf.starts[address] >> BITS
        key = shelf.starts[address]
        shelf.take(key)
        return key

    def _granule(self, shelf: FlatShelf) -> int:
        return SMALL_SEGMENT if shelf.small else self.settings.large_segment_bytes

    def _map_gap(self, shelf: FlatShelf, address: int, size: int) -> bool:
        granule = self._granule(shelf)
        mapped = -(-size // granule) * granule
        if self.reserved_bytes + mapped > self.capacity_bytes:
            return False
        gap = shelf.remove_gap(address)
        if mapped < gap:
            shelf.add_gap(address + mapped, gap - mapped)
        shelf.merge(address, mapped)
        self._reserve(mapped)
        return True

    def empty_cache(self) -> None:
        """Return every completely free segment and granule to the driver."""
        for _, shelf in sorted(self._shelves.items(), key=lambda item: item[0]):
            shelf.settle()
            for key in list(shelf.keys):
                if self.expandable:
                    self._unmap(shelf, key)
                elif shelf.segments.get(key & MASK) == key >> BITS:
                    shelf.take(key)
                    del shelf.segments[key & MASK]
                    self._places.give_back((key & MASK) // 2, key >> BITS)
                    self._reserve(-(key >> BITS))

    def _unmap(self, shelf: FlatShelf, key: int) -> None:
        """Unmap the granules that lie completely inside a free block. What is left on either side stays free."""
        granule, address = self._granule(shelf), key & MASK
        bases = sorted(shelf.segments)
        base = bases[bisect_right(bases, address) - 1]
        end = address + (key >> BITS)
        low = base + -(-(address - base) // granule) * granule
        high = base + (end - base) // granule * granule
        if low >= high:
            return
        shelf.take(key)
        if low > address:
            shelf.put(low - address << BITS | address)
        if end > high:
            shelf.put(end - high << BITS | high)
        self._reserve(low - high)
        if high in shelf.gaps:
            high += shelf.remove_gap(high)
        at = bisect_left(shelf.gap_order, low) - 1
        if at >= 0 and shelf.gap_order[at] + shelf.gaps[shelf.gap_order[at]] == low:
            low = shelf.gap_order[at]
            shelf.remove_gap(low)
        if (low, high) == (base, base + shelf.segments[base]):
            del shelf.segments[base]
        else:
            shelf.add_gap(low, high - low)


def _run_with_room(shelf: FlatShelf, size: int) -> int:
    """Return the start of the lowest run of free and unmapped ranges that is large enough, or -1."""
    starts, gaps = shelf.starts, shelf.gaps
    for gap in shelf.gap_order:
        before = shelf.ends.get(gap, 0)
        start = address = before & MASK if before else gap
        found = 0
        while found < size:
            length = gaps.get(address, 0) or starts.get(address, 0) >> BITS
            if not length:
                break
            found += length
            address += length
        if found >= size:
            return start
    return -1
