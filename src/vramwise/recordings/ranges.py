"""A set of address ranges that can be added to and removed from. Plain arithmetic on sorted lists."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

Range = tuple[int, int]  # start, end


class RangeSet:
    """Disjoint ranges by address; adjacent ranges are merged."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __iter__(self) -> Iterator[Range]:
        return iter(zip(self._starts, self._ends, strict=True))

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __contains__(self, address: int) -> bool:
        at = bisect_right(self._starts, address) - 1
        return at >= 0 and address < self._ends[at]

    def add(self, start: int, end: int) -> None:
        """Add a range, merged with those it touches."""
        low, high = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if low < high:
            start, end = min(start, self._starts[low]), max(end, self._ends[high - 1])
        self._starts[low:high], self._ends[low:high] = [start], [end]

    def holes(self, start: int, end: int) -> list[Range]:
        """Return the parts of a range that are not in the set."""
        low, high = bisect_right(self._ends, start), bisect_left(self._starts, end)
        edges = [
            start,
            *(edge for pair in zip(self._starts[low:high], self._ends[low:high], strict=True) for edge in pair),
        ]
        pairs = zip(edges[::2], [*edges[1::2], end], strict=True)
        return [(first, last) for first, last in pairs if first < last]

    def remove(self, start: int, end: int) -> None:
        """Remove a range, whether it is in the set or not."""
        low, high = bisect_right(self._ends, start), bisect_left(self._starts, end)
        touched = list(zip(self._starts[low:high], self._ends[low:high], strict=True))
        left = [(first, min(last, start)) for first, last in touched if first < start]
        left += [(max(first, end), last) for first, last in touched if last > end]
        self._starts[low:high] = [first for first, _ in left]
        self._ends[low:high] = [last for _, last in left]
