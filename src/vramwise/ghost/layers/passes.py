"""Finds the sampled layers among the events: passes through the model, forward or backward.

Of a sequence of units (groups of layers), the first two and the last two have run. The second and the last but one,
here called the *low* and the *high* unit, are adjacent in each pass. All other events are in zones between the passes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple


class Unlike(Exception):  # noqa: N818 - not an error: all layers must run
    """The layers differ in a way that prevents copying their events."""


class Span(NamedTuple):
    """The events from one cut to the next.

    `at`: the number of the pass. `unit`: 0 for the low one, 1 for the high one. `part`: the number of the unit's part.
    In a zone all three are −1.
    """

    start: int
    stop: int
    first: int  # the number of its first tensor
    end: int  # one more than the number of its last tensor
    at: int = -1
    unit: int = -1
    part: int = -1


class Pass(NamedTuple):
    """A pass: the spans of the unit that comes first, and those of the other. `upward`: the low unit comes first."""

    earlier: list[int]
    later: list[int]
    upward: bool
    made: int  # how many tensors a unit makes


class Passes:
    """The spans of a run of the sampled layers, in order, and its passes."""

    def __init__(
        self,
        begun: Sequence[tuple[int, int, str]],
        start: tuple[int, int],
        end: tuple[int, int],
        units: Sequence[Sequence[str]],
    ) -> None:
        """`begun`: position, tensor number and name where each part begins. `start`, `end`: position and tensor number.

        `units`: the names of the parts of both units. Raises Unlike if the units do not match.
        """
        self.spans: list[Span] = []
        self.all: list[Pass] = []
        unit_of = {part: (unit, place) for unit, parts in enumerate(units) for place, part in enumerate(parts)}
        starts = [(*start, ""), *begun]
        stops = [*[(position, number) for position, number, _ in begun], end]
        for (position, first, part), (stop, beyond) in zip(starts, stops, strict=True):
            unit, place = unit_of.get(part, (-1, -1))
            self.spans.append(Span(position, stop, first, beyond, -1, unit, place))
        self._find(len(units[0]))
        self._firsts = [span.first for span in self.spans]

    def _find(self, period: int) -> None:
        at = 0
        while at < len(self.spans):
            if self.spans[at].unit < 0:
                at += 1
                continue
            earlier, later = list(range(at, at + period)), list(range(at + period, at + 2 * period))
            at += 2 * period
            if at > len(self.spans):
                raise Unlike("a pass ends in the midst")
            self._check(earlier, later)
            for number in (*earlier, *later):
                self.spans[number] = self.spans[number]._replace(at=len(self.all))
            made = sum(self.spans[number].end - self.spans[number].first for number in earlier)
            self.all.append(Pass(earlier, later, self.spans[earlier[0]].unit == 0, made))
        if not self.all:
            raise Unlike("no pass through the layers")

    def _check(self, earlier: list[int], later: list[int]) -> None:
        first, second = [self.spans[number] for number in earlier], [self.spans[number] for number in later]
        for one, other in zip(first, second, strict=True):
            alike = one.stop - one.start == other.stop - other.start and one.end - one.first == other.end - other.first
            sides = (one.unit, other.unit) == (first[0].unit, 1 - first[0].unit)
            if not (alike and sides and one.part == other.part):
                raise Unlike("the units do not do the same")

    def span_of(self, tensor: int) -> int:
        """Return the number of the span that made a tensor, or 0 if the tensor existed before."""
        return max(bisect_right(self._firsts, tensor) - 1, 0)
