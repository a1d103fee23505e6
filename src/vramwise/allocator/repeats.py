"""Plays the repeated stretches of a timeline until the allocator's state repeats.

The allocator is deterministic: if a turn starts in the same state as an earlier turn, it ends in the same state too.
The turns in between have been played, so the remaining whole cycles cannot change any peak and are skipped. If no
state recurs, the player stops after a limited number of events and reports it.
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
