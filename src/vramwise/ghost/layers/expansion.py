"""Builds the events of all layers from a run of some: those of the sampled layers, and copies for the others.

The sampled layers are compared first. `Unlike` is raised before anything is changed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from vramwise.copied_events import Row, Variant
from vramwise.ghost.layers.forms import Names, Units
from vramwise.ghost.layers.passes import Passes, Unlike
from vramwise.ghost.layers.relations import Numbers, Place, Relation, related
from vramwise.ghost.layers.tags import TagSlots
from vramwise.ghost.layers.zones import insertions, zones
from vramwise.ghost.tape import Saved, Tape
from vramwise.timeline import Action, Event

_make = tuple.__new__
_ALLOC, _FREE = int(Action.ALLOC), int(Action.FREE)


class _Copied(NamedTuple):
    """One span of a pass: its rows, the tensors that it leaves, those that it frees from elsewhere, and its tags."""

    rows: list[Row]
    kept: Sequence[int]
    outer: list[Relation]
    tags: TagSlots


class Expansion:
    """Expands a stretch of the tape from the sampled layers to all layers."""

    def __init__(self, t: Tape, units: Units, names: Sequence[Names], saved: Saved) -> None:
        """`saved`: where the stretch begins. Raises Unlike if the layers cannot be copied."""
        self._t = t
        self._units = units
        self._names = names
        self._start = saved.events
        sampled = [[names[block].part for block in units.blocks(unit)] for unit in (1, -2)]
        end = (len(t.events), t.count)
        passes = Passes(t.parts_begun[saved.begun :], (saved.events, saved.tensors), end, sampled)
        self.numbers = Numbers(passes, units.number)
        self._relations: dict[int, list[Relation]] = {}  # by span
        self._copied = [
            [self._compare(*both) for both in zip(one.earlier, one.later, strict=True)]
            for one in self.numbers.passes.all
        ]
        self._inserted: list[tuple[int, list[Event]]] = []  # frees, with the position before which they are inserted
        freed = [relation.place for spans in self._copied for span in spans for relation in span.outer]
        for zone in zones(self.numbers):
            for position, places, frees in insertions(self.numbers, zone, t.events[zone.start : zone.stop]):
                self._inserted.append((position, frees))
                freed += places
        self.left = self._left(freed)

    def _left(self, freed: list[Place]) -> set[Place]:
        """Return what each unit leaves. Raises Unlike if it would free a tensor twice or one that it does not have."""
        made = {
            Place(at, span, tensor)
            for at, spans in enumerate(self._copied)
            for span, copied in enumerate(spans)
            for tensor in copied.kept
        }
        if len(set(freed)) != len(freed) or not made.issuperset(freed):
            raise Unlike("something is not freed once")
        return made.difference(freed)

    def _compare(self, earlier: int, later: int) -> _Copied:
        """Compare a span of both sampled units and return what they do in a form that holds for all units."""
        spans, events, numbers = self.numbers.passes.spans, self._t.events, self.numbers
        by_unit = sorted((earlier, later), key=lambda number: spans[number].unit)
        low, high = [events[spans[number].start : spans[number].stop] for number in by_unit]
        firsts = spans[by_unit[0]].first, spans[by_unit[1]].first
        relations = related(numbers, low, high, firsts)
        self._relations[by_unit[0]] = self._relations[by_unit[1]] = relations
        part = spans[earlier].part
        names = [self._names[self._units.blocks(unit)[part]] for unit in (1, -2)]
        tags = TagSlots(self._t, names)
        rows: list[Row] = []
        kept: dict[int, None] = {}
        outside = 0
        for (action, _, size, stream, tag), (_, tensor, _, _, other_tag) in zip(low, high, strict=True):
            number = tensor - firsts[1]
            if action == _ALLOC:
                kept[number] = None
            elif number >= 0:
                del kept[number]
            else:
                outside += 1
                number = -outside
            rows.append((action, number, size, stream, 0 if action else tags.slot(tag, other_tag)))
        return _Copied(rows, list(kept), relations, tags)

    def _copies(self, at: int) -> list[Event]:
        """Return the copy events of the other units in a pass, in order."""
        numbers, copies = self.numbers, self._t.copies
        one, copied = numbers.passes.all[at], self._copied[at]
        patterns = [copies.pattern(span.rows) for span in copied]
        units = range(numbers.low + 1, numbers.high)
        found = []
        for unit in units if one.upward else reversed(units):
            for place, (pattern, span) in enumerate(zip(patterns, copied, strict=True)):
                first = numbers.first(at, place, unit)
                outer = tuple([numbers.of(other, unit + above) - first for other, above in span.outer])
                block = self._units.blocks(unit)[numbers.passes.spans[one.earlier[place]].part]
                found.append(copies.add(pattern, first, Variant(outer, span.tags.of(self._names[block]))))
        return found

    def write(self) -> None:
        """Insert the other layers' events. Live storages keep their old numbers; `numbers` and `at` map them."""
        t, spans, start = self._t, self.numbers.passes.spans, self._start
        copies = {spans[one.later[0]].start: self._copies(at) for at, one in enumerate(self.numbers.passes.all)}
        added = sorted([*self._inserted, *copies.items()])
        self._places = [position for position, _ in added]
        self._more = list(accumulate([len(events) for _, events in added], initial=0))
        old, events, cuts = t.events[start:], list[Event](), list[int]()
        for number, span in enumerate(spans):
            copied = copies.get(span.start, []) if span.at >= 0 else []
            cuts += range(start + len(events), start + len(events) + len(copied))
            events += copied
            write = self._own if span.at >= 0 else self._between
            events += write(number, old[span.start - start : span.stop - start])
        t.events[start:] = events
        before = bisect_left(t.cuts, start)
        t.cuts[before:] = sorted([*cuts, *[self.at(cut) for cut in t.cuts[before:]]])
        self._note_alike()
        t.count += self.numbers.more

    def at(self, position: int) -> int:
        """Return the new position of an old one."""
        return position + self._more[bisect_right(self._places, position)]

    def _note_alike(self) -> None:
        spans = self.numbers.passes.spans
        for one in self.numbers.passes.all:
            sources = [self.at(spans[number].start) for number in one.earlier]
            for number, source in zip(one.later, sources, strict=True):
                self._t.alike[self.at(spans[number].start)] = source
            first = self.at(spans[one.later[0]].start) - self.numbers.skipped * len(sources)
            for turn in range(self.numbers.skipped):
                for place, source in enumerate(sources):
                    self._t.alike[first + turn * len(sources) + place] = source

    def _own(self, number: int, events: Sequence[Event]) -> list[Event]:
        """Return the events of a sampled unit with their new numbers."""
        numbers, span = self.numbers, self.numbers.passes.spans[number]
        first, shift = span.first, numbers.shifts[number]
        unit = numbers.high if span.unit else numbers.low
        relations = iter(self._relations[number])
        found = []
        for action, tensor, size, stream, tag in events:
            if tensor >= first:
                now = tensor + shift
            else:
                place, above = next(relations)
                beside = numbers.low <= unit + above <= numbers.high
                now = numbers.of(place, unit + above) if beside else numbers.moved(tensor)
            found.append(_make(Event, (action, now, size, stream, tag)))
        return found

    def _between(self, number: int, events: Sequence[Event]) -> list[Event]:
        """Return the events of a zone with their new numbers, and the frees inserted between them."""
        span, moved = self.numbers.passes.spans[number], self.numbers.moved
        first, shift = span.first, self.numbers.shifts[number]
        found: list[Event] = [
            _make(Event, (action, tensor + shift if tensor >= first else moved(tensor), size, stream, tag))
            if action <= _FREE
            else _make(Event, (action, tensor, size, stream, tag))
            for action, tensor, size, stream, tag in events
        ]
        for position, frees in reversed(self._inserted):
            if span.start <= position < span.stop:
                found[position - span.start : position - span.start] = frees
        return found
