"""Where the sampled layers stand among the events: passes through the model, forward or backward.

Of a row of units (groups of layers) the first two and the last two have run; the second and the last but one, here
called the *low* and the *high* one, stand side by side in each pass. Between passes lie zones: all else.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple


class Unlike(Exception):  # noqa: N818 - not an error: all layers must run
    """Something is not as it must be for layers to be copied."""


class Span(NamedTuple):
    """Events from one cut to the next. `at`: which pass, `unit`: 0 the low one, 1 the high one, `part`: of the unit.

    A zone has no pass: −1.
    """

    start: int
    stop: int
    first: int  # the number of its first tensor
    end: int  # beyond its last
    at: int = -1
    unit: int = -1
    part: int = -1


class Pass(NamedTuple):
    """The spans of the unit met first, then those of the other. `upward`: the low one came first."""

    earlier: list[int]
    later: list[int]
    upward: bool
    made: int  # tensors that a unit makes


class Passes:
    """The spans of a run of the sampled layers, in order."""

    def __init__(
        self,
        begun: Sequence[tuple[int, int, str]],
        start: tuple[int, int],
        end: tuple[int, int],
        units: Sequence[Sequence[str]],
    ) -> None:
        """`begun`: where parts begin; `start`, `end`: positions and numbers; `units`: the parts of both units."""
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
        """The span that made a tensor; the first for what was there before."""
        return max(bisect_right(self._firsts, tensor) - 1, 0)
