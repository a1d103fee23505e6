"""Stretches of a timeline that happen several times in a row, played until the allocator repeats itself.

The allocator is deterministic: a stretch that finds it as an earlier turn of the same stretch found it leaves it as
that turn did. The turns in between have been played, so what is left of the repetitions, whole cycles of them, cannot
change any peak. Where no state comes back, turns are played as long as the player has patience, and it says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from vramwise.allocator.blocks import Block
from vramwise.allocator.caching import CachingAllocator
from vramwise.timeline import Repeat

State = tuple[object, ...]
Live = dict[int, Any]


class Counting(Protocol):
    """An allocator, as far as repetitions look at it."""

    retries: int

    @property
    def collects(self) -> bool:
        """Whether it goes by the age of blocks."""


class TurnPlayer(Protocol):
    """Who plays the turns of a stretch."""

    allocator: Counting

    def state(self, carried: Sequence[Any]) -> State:
        """What decides how the next turn will be served."""

    def turn(self, repeat: Repeat, number: int) -> bool:
        """Play this turn, counted from 0; False if memory ran out."""

    def skip(self, repeat: Repeat, number: int, turns: int, period: int) -> None:
        """So many turns from this one on are left out: each does what the one `period` turns before it did."""

    def rename(self, old: int, new: int) -> None:
        """The tensor of one name has another from now on."""

    def patient(self, repeat: Repeat, number: int) -> bool:
        """Whether to play one more turn though none has come back to where an earlier one began."""


def state_of(allocator: CachingAllocator, carried: Sequence[Block | None]) -> State:
    """What decides how the stretch will be served: free blocks, unmapped ranges, segments, and what it will free."""
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
    """Play all turns of a stretch; False if one of them ran out of memory.

    What a turn carries over takes the name under which the next one looks for it.
    """
    allocator = player.allocator
    seen: dict[State, tuple[int, int]] = {}
    number, turns = 0, repeat.times + 1
    while number < turns:
        if number:
            for old, new in repeat.carry:
                player.rename(new, old)
        if not allocator.collects:  # garbage collection goes by age: no state of it ever comes back
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
