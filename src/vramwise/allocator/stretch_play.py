"""Plays stretches that are alike into an allocator: by their footprints where those fit, else watching for new ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vramwise.allocator.caching import CachingAllocator
from vramwise.allocator.footprint import Footprint, Tracker
from vramwise.allocator.rounding import MIN_BLOCK, SMALL
from vramwise.allocator.stretches import Half, Live, Outcome, Stretch, Stretches
from vramwise.timeline import Action, Event

_ALLOC = int(Action.ALLOC)


class Played(NamedTuple):
    """What became of a stretch. `growths`: the requests that took new memory, and what was reserved from then on."""

    stretch: Stretch
    outcome: Outcome
    growths: list[tuple[int, int]]


class StretchPlayer:
    """Plays the stretches of one timeline into one allocator."""

    def __init__(self, allocator: CachingAllocator, live: Live, events: Sequence[Event]) -> None:
        self._allocator = allocator
        self._live = live
        self._events = events
        self._stretches = Stretches(events)

    def play(self, start: int, stop: int) -> Played | None:
        """Play the stretch; None, and nothing done, where it must be played request by request."""
        stretch, first = self._stretches.at(start, stop)
        if stretch is None or not stretch.worth_it():
            return None
        allocator, live = self._allocator, self._live
        events = self._events[start:stop]
        shelves = allocator.small.shelf(0), allocator.large.shelf(0)
        halves = stretch.small, stretch.large
        matches = [half.match(shelf, live, events) for half, shelf in zip(halves, shelves, strict=True)]
        missing = [half for half, match in zip(halves, matches, strict=True) if match is None and half.events]
        stretch.tried(sum([len(half.events) for half in missing]))
        room = min(allocator.limit_bytes, allocator.capacity_bytes) - allocator.reserved_bytes
        if missing and room < sum([half.most_new for half in missing]):
            return None
        if len(missing) == 2 and not (missing[0].watched or missing[1].watched):
            return None
        before, peak = allocator.allocated_bytes, allocator.peak_allocated_bytes
        for match, shelf in zip(matches, shelves, strict=True):
            if match is not None:
                match.footprint.put_down(shelf, live, first, match.freed, match.blocks)
        watch = _Watch(allocator, live, stretch, missing)
        if missing == [stretch.small] and not stretch.small.watched:
            watch.play_small([events[position] for position in stretch.small.events])
        elif missing:
            watch.play(events)
        large = matches[1]
        outcome = stretch.outcome(watch.taken) if large is None else large.outcome
        watch.keep(outcome, first)
        allocator.allocated_bytes = before + outcome.change
        allocator.peak_allocated_bytes = max(peak, before + outcome.highest)
        return Played(stretch, outcome, watch.growths)


class _Watch:
    """A stretch being played request by request, one pool of it or both."""

    def __init__(self, allocator: CachingAllocator, live: Live, stretch: Stretch, missing: list[Half]) -> None:
        self.growths: list[tuple[int, int]] = []
        self.taken: dict[int, int] = {}
        self._allocator = allocator
        self._live = live
        self._stretch = stretch
        self._missing = missing
        self._small, self._large = [
            Tracker(pool.shelf(0)) if half in missing and half.watched else None
            for half, pool in ((stretch.small, allocator.small), (stretch.large, allocator.large))
        ]

    def play(self, events: Sequence[Event]) -> None:
        """Play what is missing."""
        allocator, live = self._allocator, self._live
        positions = range(len(events)) if len(self._missing) == 2 else self._missing[0].events
        for position in positions:
            action, tensor, size, _, _ = events[position]
            rounded = (size + MIN_BLOCK - 1) & -MIN_BLOCK
            tracker = self._small if rounded <= SMALL else self._large
            if action != _ALLOC:
                block = live.pop(tensor)
                assert block is not None
                if tracker is not None:
                    tracker.before_free(tensor, block)
                if rounded > SMALL:
                    self.taken[position] = -block.size
                allocator.free(block)
                continue
            reserved = allocator.reserved_bytes
            if tracker is not None and tracker.whole:
                tracker.before_malloc(rounded)
            block = live[tensor] = allocator.malloc(size)
            assert block is not None
            if tracker is not None:
                tracker.after_malloc(tensor, block)
            if rounded > SMALL:
                self.taken[position] = block.size
            if allocator.reserved_bytes != reserved:
                self.growths.append((self._stretch.number_of[position], allocator.reserved_bytes))

    def play_small(self, events: Sequence[Event]) -> None:
        """Play the small pool's events alone, unwatched."""
        allocator, live = self._allocator, self._live
        malloc, free, reserved = allocator.malloc, allocator.free, allocator.reserved_bytes
        for at, (action, tensor, size, _, _) in enumerate(events):
            if action == _ALLOC:
                live[tensor] = malloc(size)
                if allocator.reserved_bytes != reserved:
                    reserved = allocator.reserved_bytes
                    self.growths.append((self._stretch.number_of[self._stretch.small.events[at]], reserved))
            else:
                block = live.pop(tensor)
                assert block is not None
                free(block)

    def keep(self, outcome: Outcome, first: int) -> None:
        """Keep the footprints of what was watched."""
        for half, tracker in ((self._stretch.small, self._small), (self._stretch.large, self._large)):
            if tracker is not None and tracker.whole:
                half.keep(Footprint(tracker, self._live, first), outcome)
