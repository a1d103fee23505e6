"""What a recording keeps step by step: where its steps begin, and which places have live blocks from many steps.

Knows stacks and blocks; what holds them (a list, a graph that was not released) is not in a recording.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from vramwise.diagnosis.read.frames import Origins
from vramwise.recordings.growth import FEWEST
from vramwise.recordings.recording import ALLOC, Call, Recording, calls_of


class Growth(NamedTuple):
    """A place whose allocations stay alive step after step."""

    place: str
    size_bytes: int
    blocks: int
    steps: int


def growing_places(recording: Recording, origins: Origins, live: Iterable[tuple[int, int]], at: int) -> list[Growth]:
    """Return places whose allocations from many different steps are all still alive at an event.

    `live`: size and event of each block, -1 for blocks from before the recording.

    Within one step, many blocks of one place stay alive too: the activations that each layer saves. Weights, gradients
    and optimizer state stay forever, but each is made once: a parameter that first gets its gradient in a later step
    (an expert that no token had chosen) is no leak. Growth over only a few steps is normal: caches, buffers of the
    first evaluation.
    """
    if not origins.recorded:
        return []
    starts = step_starts(recording, origins, at)
    allocated = 0
    kept: dict[tuple[Call, ...], list[tuple[int, int]]] = defaultdict(list)
    stacks = _Stacks()
    for size, event in live:
        allocated += size
        if event >= 0 and origins.of(event).category not in ("weights", "optimizer", "gradients"):
            kept[stacks.calls(recording.stack(event))].append((event, size))
    found = []
    for blocks in kept.values():
        steps = len({bisect_right(starts, event) for event, _ in blocks})
        size = sum(size for _, size in blocks)
        if steps >= FEWEST and size >= allocated // 20:
            found.append(Growth(origins.of(blocks[0][0]).place, size, len(blocks), steps))
    return sorted(found, key=lambda growth: -growth.size_bytes)


def step_starts(recording: Recording, origins: Origins, at: int) -> list[int]:
    """Return where steps begin: the first forward allocation after a backward or optimizer allocation.

    Anything else (clipping, logging, moving a batch) belongs to the step before. A forward pass that checkpointing
    recomputes counts as backward; otherwise each layer would count as a step.
    """
    starts = []
    before = "backward"
    for index in range(at):
        if recording.events.rows[index][0] == ALLOC:
            part = origins.of(index).part
            if part == "forward" and before != "forward":
                starts.append(index)
            before = part or before
    return starts


class _Stacks:
    """Whole stacks as keys: only the checked calls, not other content of the file."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Call, ...]] = {}  # by identity: torch writes a stack once and reuses it

    def calls(self, stack: object) -> tuple[Call, ...]:
        found = self._known.get(id(stack))
        if found is None:
            found = self._known[id(stack)] = tuple(calls_of(stack))
        return found
