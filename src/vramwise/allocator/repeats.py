"""Stretches of a timeline that happen several times in a row: played until the allocator repeats itself, or unrolled.

The allocator is deterministic: a stretch that finds it as an earlier turn of the same stretch found it leaves it as
that turn did. The turns in between have been played, so what is left of the repetitions, whole cycles of them, cannot
change any peak. Nothing here is assumed: where no state comes back, every turn is played.
"""

from __future__ import annotations

from collections.abc import Callable

from vramwise.allocator.blocks import Block
from vramwise.allocator.caching import CachingAllocator
from vramwise.timeline import Action, Event, Repeat, Timeline

_ALLOC, _FREE = int(Action.ALLOC), int(Action.FREE)

State = tuple[object, ...]
Live = dict[int, Block | None]


def state_of(allocator: CachingAllocator, live: Live, repeat: Repeat) -> State:
    """What decides how the stretch will be served: free blocks, unmapped ranges, segments, and what it will free."""
    shelves = [shelf for pool in (allocator.small, allocator.large) for shelf in pool.shelves.values()]
    carried = [live.get(old) for old, _ in repeat.carry]
    return (
        allocator.reserved_bytes,
        allocator.retries,
        allocator.ranges,
        tuple(allocator.segments),
        tuple([tuple(shelf.keys) for shelf in shelves]),
        tuple([tuple([(block.address, block.size) for block in shelf.unmapped]) for shelf in shelves]),
        tuple([None if block is None else (block.address, block.size) for block in carried]),
    )


def play_repeat(allocator: CachingAllocator, live: Live, repeat: Repeat, turn: Callable[[bool], bool]) -> bool:
    """Play all turns of a stretch; False if one of them ran out of memory.

    `turn` plays the stretch's events, and is told whether it is for the first time. What a turn carries over takes the
    name under which the next one looks for it.
    """
    seen: dict[State, int] = {}
    left = repeat.times + 1
    while left > 0:
        first = left > repeat.times
        if not first:
            for old, new in repeat.carry:
                live[old] = live.pop(new)
        if not allocator.collects:  # garbage collection goes by age: no state of it ever comes back
            state = state_of(allocator, live, repeat)
            if state in seen:
                left %= seen[state] - left
                seen.clear()
                if not left:
                    _rename_back(live, repeat)
                    return True
            else:
                seen[state] = left
        if not turn(first):
            return False
        left -= 1
    return True


def _rename_back(live: Live, repeat: Repeat) -> None:
    for old, new in repeat.carry:
        live[new] = live.pop(old)


def unroll(timeline: Timeline) -> Timeline:
    """The same timeline with every turn written out, under names of their own."""
    if not timeline.repeats:
        return timeline
    events: list[Event] = []
    fresh = 1 + max((event[1] for event in timeline.events), default=0)
    final: dict[int, int] = {}  # names of the short timeline → what they are called after the turns
    start = 0
    for repeat in timeline.repeats:
        events += _renamed(timeline.events[start : repeat.end], final)
        stretch = timeline.events[repeat.start : repeat.end]
        made = {event[1] for event in stretch if event[0] == _ALLOC}
        start = repeat.end
        for _ in range(repeat.times):
            names = {old: final.get(new, new) for old, new in repeat.carry}
            for number in sorted(made):
                names[number] = fresh
                fresh += 1
            events += _renamed(stretch, {**final, **names})
            final.update({new: names[new] for _, new in repeat.carry})
    events += _renamed(timeline.events[start:], final)
    return Timeline(events=events, tags=timeline.tags, phases=timeline.phases)


def _renamed(events: object, names: dict[int, int]) -> list[Event]:
    assert isinstance(events, list)
    if not names:
        return events
    return [
        event._replace(tensor=names[event[1]]) if event[0] <= _FREE and event[1] in names else event for event in events
    ]
