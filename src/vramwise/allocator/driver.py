"""Where the CUDA driver places plain segments. Up to torch 2.12, this decides between free blocks of the same size.

The driver's choice is not documented. `TopDownPlaces` follows what was observed (Linux, driver 580, H200). Address
space is taken in regions of a multiple of 32 MiB, each just below the last. A segment goes to the lowest gap with
enough room, and opens a new region only if there is none. This rule reproduces all 183,000 allocations of four recorded
runs in plain mode without knowing any address; ascending addresses do not. Gaps left by other users of the address
space (the context, loaded kernels) are not modelled.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from vramwise.allocator.blocks import ADDRESS_BITS, AllocationError
from vramwise.units import MIB

REGION = 32 * MIB
_LAST = 1 << ADDRESS_BITS
# Any address works if everything fits below it: only the order matters.
TOP = 1 << 46
# Segments that do not fit below TOP go here, far above. No machine has so much memory, but it can be counted.
_FAR_TOP = 1 << 62


class Places(Protocol):
    """Hands out addresses for plain segments."""

    def take(self, size: int) -> int:
        """Return the address of a new segment."""

    def give_back(self, address: int, size: int) -> None:
        """Called when the segment at this address is freed."""


class TopDownPlaces:
    """The driver's behaviour on Linux: the lowest gap first, new regions downwards."""

    def __init__(self) -> None:
        self._bottom = TOP
        self._gaps: list[tuple[int, int]] = []  # (start, end), by address

    def take(self, size: int) -> int:
        """Return the lowest gap with enough room, or the start of a new region."""
        for at, (start, end) in enumerate(self._gaps):
            if end - start >= size:
                self._gaps[at : at + 1] = [(start + size, end)] if end - start > size else []
                return start
        region = -(-size // REGION) * REGION
        if region > self._bottom:
            self._bottom = _FAR_TOP
        end, self._bottom = self._bottom, self._bottom - region
        if self._bottom + size < end:
            self._gaps.insert(0, (self._bottom + size, end))
        return self._bottom

    def give_back(self, address: int, size: int) -> None:
        """Turn the segment into a gap, merged with adjacent gaps."""
        start, end = address, address + size
        kept = []
        for gap in self._gaps:
            if gap[1] == start:
                start = gap[0]
            elif gap[0] == end:
                end = gap[1]
            else:
                kept.append(gap)
        self._gaps = sorted([*kept, (start, end)])


class AscendingPlaces:
    """Places each segment above all earlier ones.

    The order by address is then the order by age, which decides between equal blocks in torch 2.13.
    """

    def __init__(self) -> None:
        self._next = TOP

    def take(self, size: int) -> int:
        """Return the next unused address. Raises AllocationError if none is left."""
        if self._next + size > _LAST:
            raise AllocationError(f"out of addresses: {size} bytes requested")
        address, self._next = self._next, self._next + size
        return address

    def give_back(self, address: int, size: int) -> None:
        """Do nothing: addresses are not reused."""


class RecordedPlaces:
    """Uses the addresses of a recording. If the simulation grows and the recording did not, it picks its own address.

    `by_age`: for torch 2.13, which orders by age, not address. Segments then get ascending addresses, and `here` maps
    recorded addresses to them.
    """

    def __init__(self, by_age: bool) -> None:
        self.here: dict[int, int] = {}  # recorded address → address in the simulation
        self._by_age = by_age
        self._announced: deque[tuple[int, int]] = deque()
        self._own = AscendingPlaces()

    def announce(self, address: int, size: int) -> None:
        """Announce the next segment of the recording."""
        self._announced.append((address, size))

    def forget(self) -> None:
        """Drop announced segments that were not used, because the simulation did not grow where the recording did."""
        self._announced.clear()

    def adopt(self, address: int, size: int) -> int:
        """Return the address in the simulation of a recorded segment, and remember it in `here`."""
        self.here[address] = place = self._own.take(size) if self._by_age else address
        return place

    def take(self, size: int) -> int:
        """Return the announced address if the size matches, otherwise a new one."""
        if self._announced and self._announced[0][1] == size:
            return self.adopt(*self._announced.popleft())
        return self._own.take(size)

    def give_back(self, address: int, size: int) -> None:
        """Do nothing: the recording determines the next address."""
