"""Expresses the tensors that a layer frees relative to the layer: its own, or those of the layer below or above."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vramwise.ghost.layers.passes import Pass, Passes, Unlike
from vramwise.timeline import Action, Event

_FREE = int(Action.FREE)


class Place(NamedTuple):
    """A tensor of a unit: the pass that made it, the position of its span in that pass, and its index in the span."""

    at: int
    span: int
    local: int


class Relation(NamedTuple):
    """A tensor of the same unit (0), of the one below (−1) or of the one above (1)."""

    place: Place
    above: int


class Numbers:
    """Maps tensors of the sampled run to their numbers in the run of all units."""

    def __init__(self, passes: Passes, units: int) -> None:
        self.passes = passes
        self.low, self.high = 1, units - 2
        self.skipped = units - 4
        self.shifts: list[int] = []  # by span
        ends = {one.earlier[-1]: one.made for one in passes.all}
        shift = 0
        for number in range(len(passes.spans)):
            self.shifts.append(shift)
            shift += self.skipped * ends.get(number, 0)
        self.more = shift

    def turn(self, one: Pass, unit: int) -> int:
        """Return the index, from 0, at which a pass reaches a unit, among those from the low to the high unit."""
        return unit - self.low if one.upward else self.high - unit

    def first(self, at: int, span: int, unit: int) -> int:
        """Return the number of the first tensor of a unit's span."""
        one = self.passes.all[at]
        number = one.earlier[span]
        return self.passes.spans[number].first + self.shifts[number] + self.turn(one, unit) * one.made

    def of(self, place: Place, unit: int) -> int:
        """Return the number of a unit's tensor."""
        return self.first(place.at, place.span, unit) + place.local

    def moved(self, tensor: int) -> int:
        """Return the number, in the run of all units, of a tensor of the sampled run."""
        return tensor + self.shifts[self.passes.span_of(tensor)] if tensor >= self.passes.spans[0].first else tensor

    def place(self, tensor: int) -> tuple[Place, int] | None:
        """Return the place and the unit (0: low, 1: high) of a sampled unit's tensor, or None for other tensors."""
        number = self.passes.span_of(tensor)
        span = self.passes.spans[number]
        if span.at < 0 or tensor < span.first:
            return None
        one = self.passes.all[span.at]
        spans = one.earlier if number in one.earlier else one.later
        return Place(span.at, spans.index(number), tensor - span.first), span.unit


def related(numbers: Numbers, low: Sequence[Event], high: Sequence[Event], firsts: tuple[int, int]) -> list[Relation]:
    """Return the tensors that both units free but their span has not made, in order.

    `firsts`: the number of the first tensor of each span. Raises Unlike if the units do not do the same.
    """
    found = []
    for (action, one, *request, _), (other_action, other, *other_request, _) in zip(low, high, strict=True):
        if action != other_action or action > _FREE or request != other_request:
            raise Unlike("another request")
        own = one >= firsts[0]
        if own and one - firsts[0] != other - firsts[1]:
            raise Unlike("another order")
        if not own:
            found.append(_relation(numbers.place(one), numbers.place(other)))
    return found


def _relation(by_low: tuple[Place, int] | None, by_high: tuple[Place, int] | None) -> Relation:
    if by_low is not None and by_high is not None:
        if by_low[0] == by_high[0] and (by_low[1], by_high[1]) == (0, 1):
            return Relation(by_low[0], 0)
    elif by_high is not None and by_high[1] == 0:
        return Relation(by_high[0], -1)
    elif by_low is not None and by_low[1] == 1:
        return Relation(by_low[0], 1)
    raise Unlike("frees what others do not")
