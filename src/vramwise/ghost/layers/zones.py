"""Handles tensors that are freed between passes through the layers, layer by layer.

For example, the end of an autocast context frees its copies of weights, and the end of a graph frees what it held. If
the tensors of the two sampled units are freed next to each other, those of the other units are freed in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from vramwise.ghost.layers.passes import Unlike
from vramwise.ghost.layers.relations import Numbers, Place
from vramwise.timeline import Action, Event

_FREE = int(Action.FREE)


class Zone(NamedTuple):
    """The events from one pass to the next. `sides`: the units next to it; 0 is the low one, 1 the high one."""

    start: int
    stop: int
    sides: frozenset[int]


class _Freed(NamedTuple):
    position: int
    place: Place
    unit: int
    size: int


def zones(numbers: Numbers) -> Iterator[Zone]:
    """Yield all zones in order."""
    spans, passes = numbers.passes.spans, numbers.passes.all
    start, side = spans[0].start, set[int]()
    for one in passes:
        yield Zone(start, spans[one.earlier[0]].start, frozenset({*side, 0 if one.upward else 1}))
        start, side = spans[one.later[-1]].stop, {1 if one.upward else 0}
    yield Zone(start, spans[-1].stop, frozenset(side))


def insertions(numbers: Numbers, zone: Zone, events: Sequence[Event]) -> Iterator[tuple[int, list[Place], list[Event]]]:
    """Yield the frees to insert: the position, the tensors that each other unit frees there, and the events.

    `events`: the events of the zone. Raises Unlike if something is freed of one unit only.
    """
    freed = _freed(numbers, zone, events)
    runs = [list(run) for _, run in groupby(freed, lambda one: one.unit)]
    single = [len(run) for run in runs]
    for at, (first, second) in enumerate(pairwise(runs)):
        size = _in_common(first, second)
        if not size or first[-1].position + 1 != second[0].position:
            continue
        single[at] -= size
        single[at + 1] -= size
        upward = first[0].unit == 0
        units = range(numbers.low + 1, numbers.high) if upward else range(numbers.high - 1, numbers.low, -1)
        yield (
            second[0].position,
            [one.place for one in second[:size]],
            [Event(_FREE, numbers.of(one.place, unit), one.size, 0, 0) for unit in units for one in second[:size]],
        )
    if any(left and run[0].unit not in zone.sides for run, left in zip(runs, single, strict=True)):
        raise Unlike("something is freed of one unit alone")


def _freed(numbers: Numbers, zone: Zone, events: Sequence[Event]) -> list[_Freed]:
    """Return the tensors of the sampled units that are freed in a zone."""
    least = numbers.passes.spans[numbers.passes.all[0].earlier[0]].first
    found = []
    for position, event in enumerate(events, zone.start):
        if event[0] != _FREE or event[1] < least:
            continue
        place = numbers.place(event[1])
        if place is not None:
            found.append(_Freed(position, *place, event[2]))
    return found


def _in_common(first: list[_Freed], second: list[_Freed]) -> int:
    """Return how many tensors at the end of `first` are also, in the same order, at the start of `second`."""
    for size in range(min(len(first), len(second)), 0, -1):
        if [one.place for one in first[-size:]] == [one.place for one in second[:size]]:
            return size
    return 0
