"""Plays the repeated stretches of a timeline until the allocator's state repeats, or expands them.

The allocator is deterministic: if a turn starts in the same state as an earlier turn, it ends in the same state too.
The turns in between have been played, so the remaining whole cycles cannot change any peak and are skipped. If no
state recurs, the player stops after a limited number of events and reports it.

Expanded timelines are for consumers that need every event, such as a chart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from vramwise.allocator.blocks import Block
from vramwise.allocator.caching import CachingAllocator
from vramwise.timeline import Action, Event, Phase, Repeat, Timeline

State = tuple[object, ...]
Live = dict[int, Any]


class Counting(Protocol):
    """The part of an allocator's interface that repetitions use."""

    retries: int

    @property
    def collects(self) -> bool:
        """Whether it collects garbage by the age of blocks."""


class TurnPlayer(Protocol):
    """Plays the turns of a stretch."""

    allocator: Counting

    def state(self, carried: Sequence[Any]) -> State:
        """Return everything that determines how the next turn is served."""

    def turn(self, repeat: Repeat, number: int) -> bool:
        """Play turn `number`, counted from 0. Returns False if memory ran out."""

    def skip(self, repeat: Repeat, number: int, turns: int, period: int) -> None:
        """Skip this many turns from turn `number` on. Each is the same as the turn `period` turns before it."""

    def rename(self, old: int, new: int) -> None:
        """Rename a live tensor."""

    def patient(self, repeat: Repeat, number: int) -> bool:
        """Return whether to play one more turn although no state has recurred."""


def state_of(allocator: CachingAllocator, carried: Sequence[Block | None]) -> State:
    """Return everything that determines how a stretch is served.

    This is the free blocks, unmapped ranges, segments, and the blocks in `carried`, which the stretch will free.
    """
    shelves = [shelf for pool in (allocator.small, allocator.large) for shelf in pool.shelves.values()]
    return (
        allocator.reserved_bytes,
        allocator.ranges,
        tuple(allocator.segments),
        tuple([tuple(shelf.keys) for shelf in shelves]),
        tuple([tuple([(block.address, block.size) for block in shelf.unmapped]) for shelf in shelves]),
        tuple([None if block is None else (block.address, block.size) for block in carried]),
    )


def play_repeat(player: TurnPlayer, live: Live, repeat: Repeat) -> bool:
    """Play all turns of a stretch. Returns False if one of them ran out of memory.

    Tensors that a turn carries over are renamed to the names that the next turn uses.
    """
    allocator = player.allocator
    seen: dict[State, tuple[int, int]] = {}
    number, turns = 0, repeat.times + 1
    while number < turns:
        if number:
            for old, new in repeat.carry:
                player.rename(new, old)
        if not allocator.collects:  # garbage collection depends on age, so its state never recurs
            state = player.state([live.get(old) for old, _ in repeat.carry])
            if state in seen:
                before, retries = seen[state]
                period = number - before
                cycles = (turns - number) // period
                allocator.retries += cycles * (allocator.retries - retries)
                player.skip(repeat, number, cycles * period, period)
                number += cycles * period
                seen.clear()
            else:
                seen[state] = number, allocator.retries
        if number == turns or not player.patient(repeat, number):
            for old, new in repeat.carry:
                player.rename(old, new)
            return True
        if not player.turn(repeat, number):
            return False
        number += 1
    return True


_ALLOC, _FREE, _PHASE = int(Action.ALLOC), int(Action.FREE), int(Action.PHASE)

# A chart or a snapshot of more events would take gigabytes and be of no use.
MOST_EVENTS = 1_000_000


def unroll(timeline: Timeline, most: int | None = None) -> Timeline:
    """Return the timeline with all turns of its repeats expanded. Tensors of later turns get new names.

    Turns that would bring the timeline above `most` events are left out.
    """
    if not timeline.repeats:
        return timeline
    unroller = _Unroller(timeline, most)
    unroller.write(0, len(timeline.events), timeline.repeats)
    return Timeline(events=unroller.events, tags=timeline.tags, phases=unroller.phases)


def unrolled_length(events: int, repeats: Sequence[Repeat]) -> int:
    """Return the number of events after all turns are expanded."""
    for repeat in repeats:
        events += unrolled_length(repeat.end - repeat.start, repeat.inner) * (repeat.times + 1)
        events -= repeat.end - repeat.start
    return events


class _Unroller:
    def __init__(self, timeline: Timeline, most: int | None) -> None:
        self.timeline = timeline
        self.events: list[Event] = []
        self.phases: list[Phase] = list(timeline.phases)
        self._most = most
        self._again = False  # within a turn after the first, whose tensors need new names
        self._shift = 0  # steps since the first turn
        self._fresh = 1 + max((event[1] for event in timeline.events), default=0)
        self._names: dict[int, int] = {}  # names in the original timeline → current names

    def write(self, start: int, end: int, repeats: Sequence[Repeat]) -> None:
        """Write these events, with the repeats among them expanded."""
        for repeat in repeats:
            self._copy(start, repeat.start)
            self.write(repeat.start, repeat.end, repeat.inner)
            self._turns(repeat)
            start = repeat.end
        self._copy(start, end)

    def _turns(self, repeat: Repeat) -> None:
        again, shift, names = self._again, self._shift, self._names
        for _ in range(repeat.times):
            if self._most is not None and len(self.events) + repeat.end - repeat.start > self._most:
                break
            self._again = True
            self._shift += repeat.steps
            for old, new in repeat.carry:
                names[old] = names.pop(new, new)
            self.write(repeat.start, repeat.end, repeat.inner)
        self._again, self._shift = again, shift

    def _copy(self, start: int, end: int) -> None:
        part = self.timeline.events[start:end]
        self.events += [self._renamed(event) for event in part] if self._names or self._again else part

    def _renamed(self, event: Event) -> Event:
        action, tensor = event[0], event[1]
        if action == _ALLOC:
            if not self._again:
                return event
            self._names[tensor] = self._fresh
            self._fresh += 1
            return event._replace(tensor=self._names[tensor])
        if action == _FREE and tensor in self._names:
            return event._replace(tensor=self._names.pop(tensor))
        if action == _PHASE and self._shift:
            name, step = self.timeline.phases[event[4]]
            self.phases.append(Phase(name, step + self._shift))
            return event._replace(tag=len(self.phases) - 1)
        return event
