"""Where the CUDA driver puts plain segments. Up to torch 2.12 that decides between free blocks of the same size.

The driver's choice is not documented. `TopDownPlaces` is what it was seen to do (Linux, driver 580, H200): address
space is taken in regions of a multiple of 32 MiB, each new region just below the last; a segment goes to the lowest gap
of a region that has room, and opens a new region only when there is none. With it, four recorded runs in plain mode
are met in every one of 183,000 allocations without being told an address; with ascending addresses they are not. Gaps
that other users of the address space leave (the context, loaded kernels) are not known here.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from vramwise.allocator.blocks import ADDRESS_BITS, AllocationError
from vramwise.units import MIB

REGION = 32 * MIB
_LAST = 1 << ADDRESS_BITS
# Any address does, as long as everything fits below it: the order alone matters.
TOP = 1 << 46
# What does not fit below it goes here, far above: more than any machine has, but it can be counted.
_FAR_TOP = 1 << 62


class Places(Protocol):
    """Hands out addresses for plain segments."""

    def take(self, size: int) -> int:
        """The address of a new segment."""

    def give_back(self, address: int, size: int) -> None:
        """The segment at this address was freed."""


class TopDownPlaces:
    """The driver's habit on Linux: lowest gap first, new regions downwards."""

    def __init__(self) -> None:
        self._bottom = TOP
        self._gaps: list[tuple[int, int]] = []  # (start, end), by address

    def take(self, size: int) -> int:
        """The lowest gap with room, or the start of a new region."""
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
        """Make it a gap again, joined with the gaps beside it."""
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
    """Each segment above all earlier ones: by address means by age, which is torch 2.13's rule between equal blocks."""

    def __init__(self) -> None:
        self._next = TOP

    def take(self, size: int) -> int:
        """The next address never used before."""
        if self._next + size > _LAST:
            raise AllocationError(f"out of addresses: {size} bytes requested")
        address, self._next = self._next, self._next + size
        return address

    def give_back(self, address: int, size: int) -> None:
        """Addresses are not used twice."""


class RecordedPlaces:
    """The addresses a recording shows; where the simulation grows and the recording did not, a place of our own.

    `by_age`: torch 2.13 goes by age, not address, so segments get ascending places and `here` keeps what is what.
    """

    def __init__(self, by_age: bool) -> None:
        self.here: dict[int, int] = {}  # recorded address: ours
        self._by_age = by_age
        self._announced: deque[tuple[int, int]] = deque()
        self._own = AscendingPlaces()

    def announce(self, address: int, size: int) -> None:
        """The recording's next segment is this one."""
        self._announced.append((address, size))

    def forget(self) -> None:
        """Drop what was announced and not used: the simulation did not grow where the recording did."""
        self._announced.clear()

    def adopt(self, address: int, size: int) -> int:
        """The place of a segment of the recording."""
        self.here[address] = place = self._own.take(size) if self._by_age else address
        return place

    def take(self, size: int) -> int:
        """The announced place if the size agrees."""
        if self._announced and self._announced[0][1] == size:
            return self.adopt(*self._announced.popleft())
        return self._own.take(size)

    def give_back(self, address: int, size: int) -> None:
        """The recording says what comes next."""
