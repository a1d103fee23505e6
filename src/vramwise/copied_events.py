"""Events that are stored once and occur several times: those of a layer, for all layers that do the same.

In the events of a ghost run, one event with the action `COPY` represents all events of a pattern, with other tensor
numbers. Its `tensor` is the number from which the pattern's own tensors count, `size_bytes` the number of events,
`stream` the pattern and `tag` the `Variant`. A pattern consists of rows like events: its own tensors count from 0,
outer tensors are −1, −2 and so on, and tags are positions in the variant's tags.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain
from typing import NamedTuple, overload

from vramwise.timeline import Event, Repeat

COPY = 9

_make = tuple.__new__

Row = tuple[int, int, int, int, int]


class Variant(NamedTuple):
    """What differs between copies: offsets of outer tensors from the copy's first tensor (negative), and tags."""

    outer: tuple[int, ...]
    tags: tuple[int, ...]


class Copies:
    """The patterns and variants of a run."""

    def __init__(self) -> None:
        self.patterns: list[tuple[Row, ...]] = []
        self.variants: list[Variant] = []
        self._numbers: dict[tuple[Row, ...], int] = {}

    def pattern(self, rows: Sequence[Row]) -> int:
        """Return the number of the pattern with these rows, adding it if it is new."""
        key = tuple(rows)
        number = self._numbers.setdefault(key, len(self.patterns))
        if number == len(self.patterns):
            self.patterns.append(key)
        return number

    def add(self, pattern: int, first: int, variant: Variant) -> Event:
        """Add a copy of a pattern and return the event that represents it."""
        self.variants.append(variant)
        return Event(COPY, first, len(self.patterns[pattern]), pattern, len(self.variants) - 1)

    def events(self, copy: Sequence[int]) -> list[Event]:
        """Return the events that a copy represents."""
        _, first, _, pattern, variant = copy
        outer, tags = self.variants[variant]
        return [
            _make(Event, (action, first + (number if number >= 0 else outer[~number]), size, stream, tags[tag]))
            for action, number, size, stream, tag in self.patterns[pattern]
        ]

    def event(self, copy: Sequence[int], position: int) -> Event:
        """Return the event at one position of a copy."""
        _, first, _, pattern, variant = copy
        outer, tags = self.variants[variant]
        action, number, size, stream, tag = self.patterns[pattern][position]
        return Event(action, first + (number if number >= 0 else outer[~number]), size, stream, tags[tag])


class WrittenOut(Sequence[Event]):
    """A sequence of events with its copies expanded.

    Copies are expanded one by one on access, and all at once when iterated or sliced widely.
    """

    __slots__ = ("_at", "_copies", "_every", "_parts", "_starts", "_total", "written")

    def __init__(self, events: Sequence[Event], copies: Copies, places: Sequence[int]) -> None:
        """`places`: the positions of the copies in `events`."""
        self._copies = copies
        self.written = len(events)  # counts a copy as one
        # runs of events, and single copies
        self._parts: list[Sequence[Event] | Event] = []
        begin = 0
        for place in places:
            if begin < place:
                self._parts.append(events[begin:place])
            self._parts.append(events[place])
            begin = place + 1
        self._parts.append(events[begin:])
        lengths = [part[2] if isinstance(part, Event) else len(part) for part in self._parts]
        self._starts = list(accumulate(lengths, initial=0))  # the last entry is the end
        self._total = self._starts[-1]
        self._every: list[Event] | None = None
        self._at = 0  # the part of the last lookup: the next position is often in it

    def __len__(self) -> int:
        return self._total

    def __iter__(self) -> Iterator[Event]:
        return iter(self._all())

    def _all(self) -> list[Event]:
        if self._every is None:
            self._every = list(chain.from_iterable(map(self._written, self._parts)))
        return self._every

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def _written(self, part: Sequence[Event] | Event) -> Sequence[Event]:
        return self._copies.events(part) if isinstance(part, Event) else part

    @overload
    def __getitem__(self, place: int) -> Event: ...

    @overload
    def __getitem__(self, place: slice) -> list[Event]: ...

    def __getitem__(self, place: int | slice) -> Event | list[Event]:
        if isinstance(place, slice):
            return self._slice(*place.indices(self._total))
        if place < 0:
            place += self._total
        if not 0 <= place < self._total:
            raise IndexError(place)
        at, starts = self._at, self._starts
        if not starts[at] <= place < starts[at + 1]:
            at = self._at = bisect_right(starts, place) - 1
        part, start = self._parts[at], starts[at]
        return self._copies.event(part, place - start) if isinstance(part, Event) else part[place - start]

    def copied_tensors(self, start: int, positions: Sequence[int]) -> list[int] | None:
        """The tensors of some events of the copy that begins there; None where none does."""
        at = bisect_right(self._starts, start) - 1
        part = self._parts[at]
        if not isinstance(part, Event) or self._starts[at] != start:
            return None
        _, first, _, pattern, variant = part
        rows, outer = self._copies.patterns[pattern], self._copies.variants[variant].outer
        numbers = [rows[position][1] for position in positions]
        return [first + (number if number >= 0 else outer[~number]) for number in numbers]

    def _slice(self, start: int, stop: int, step: int) -> list[Event]:
        if self._every is not None or step != 1 or 2 * (stop - start) > self._total:
            return self._all()[start:stop:step]
        found: list[Event] = []
        at = bisect_right(self._starts, start) - 1
        while at < len(self._parts) and self._starts[at] < stop:
            begin = self._starts[at]
            found += self._written(self._parts[at])[max(start - begin, 0) : stop - begin]
            at += 1
        return found


def tensors_of(events: Sequence[Event], start: int, positions: Sequence[int]) -> list[int]:
    """The tensors of some events, by their positions from a start on."""
    found = events.copied_tensors(start, positions) if isinstance(events, WrittenOut) else None
    return [events[start + position][1] for position in positions] if found is None else found


def places_written_out(events: Sequence[Event], places: Sequence[int]) -> Callable[[int], int]:
    """Where a position lies once copies, which are at these places, are written out."""
    more = list(accumulate([events[place][2] - 1 for place in places], initial=0))
    return lambda position: position + more[bisect_left(places, position)]


def moved_repeat(repeat: Repeat, at: Callable[[int], int]) -> Repeat:
    """Return the repeat with its positions, and those of its inner repeats, mapped by `at`."""
    inner = tuple([moved_repeat(one, at) for one in repeat.inner])
    return repeat._replace(start=at(repeat.start), end=at(repeat.end), inner=inner)
