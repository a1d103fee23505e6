"""A torch memory snapshot → facts: who held the memory at the failure, the holes between, what grew, what if.

The moment of interest is the last failed request of the recording, or, where none failed, that of the most allocated.
Snapshots are often dumped after the failure, when the stack has unwound and its tensors are gone: the state is
therefore rebuilt from the events, never read off the segments at the end. Reading the file is `allocator.reader`'s
business.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from vramwise.allocator.initial import initial_segments
from vramwise.allocator.ranges import RangeSet
from vramwise.allocator.recording import (
    ALLOC,
    FREE,
    FREE_COMPLETED,
    OUT_OF_MEMORY,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    Recording,
)
from vramwise.allocator.replay import USUAL_TORCH, replay
from vramwise.allocator.settings import parse_settings
from vramwise.diagnose.frames import category_of, place_of
from vramwise.errors import VramwiseError
from vramwise.units import MIB

# What is asked of the replay. The empty text means torch's defaults.
OTHER_SETTINGS = ("expandable_segments:True", "", "roundup_power2_divisions:16", "garbage_collection_threshold:0.8")
_MOST_HOLDERS = 12
_BEFORE = "allocated before the recording began"
# A leak: blocks of one stack that are still alive, from at least so many steps.
_FEWEST_STEPS = 5


class Holder(NamedTuple):
    """Memory that one place in the code held."""

    place: str
    category: str
    size_bytes: int
    blocks: int


class Growth(NamedTuple):
    """A place whose allocations were kept, step after step."""

    place: str
    size_bytes: int
    blocks: int
    steps: int


class WhatIf(NamedTuple):
    """What other settings would have done. `served`: the request that failed would have been served."""

    settings: str
    served: bool
    peak_reserved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFacts:
    """What a recording shows at the moment of interest. `failed`: that is a request that failed."""

    name: str
    events: int
    settings: str
    failed: bool
    requested_bytes: int
    device_free_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    failing_place: str
    failing_category: str
    by_category: Mapping[str, int]
    holders: Sequence[Holder]
    holes: int
    largest_hole_bytes: int
    growing: Sequence[Growth]
    what_if: Sequence[WhatIf]
    at: int = field(repr=False, default=-1)  # position of the moment among the recording's events

    @property
    def unallocated_bytes(self) -> int:
        """Reserved, but held by no tensor."""
        return self.reserved_bytes - self.allocated_bytes


class _Live(NamedTuple):
    size: int
    event: int  # -1: there before the recording began


class _State:
    """The allocator's memory, event by event."""

    def __init__(self, recording: Recording) -> None:
        self.plain: dict[int, int] = {}
        self.mapped = RangeSet()
        self.live: dict[int, _Live] = {}
        self.allocated = self.reserved = 0
        settings = parse_settings(recording.settings, recording.torch or USUAL_TORCH)
        for segment in initial_segments(recording, settings, recording.torch or USUAL_TORCH):
            for start, end in segment.mapped:
                self._take(start, end - start, segment.expandable)
            for block in segment.blocks:
                self.live[block.address] = _Live(block.size, -1)
                self.allocated += block.size

    def play(self, index: int, action: int, address: int, size: int) -> None:
        """One event."""
        if action == ALLOC:
            self.live[address] = _Live(size, index)
            self.allocated += size
        elif action in (FREE, FREE_COMPLETED):
            gone = self.live.pop(address, None)
            self.allocated -= gone.size if gone else 0
        elif action in (SEGMENT_ALLOC, SEGMENT_MAP):
            self._take(address, size, action == SEGMENT_MAP)
        elif action == SEGMENT_FREE:
            self.reserved -= self.plain.pop(address, 0)
        elif action == SEGMENT_UNMAP:
            self.mapped.remove(address, address + size)
            self.reserved -= size

    def _take(self, address: int, size: int, expandable: bool) -> None:
        self.reserved += size
        if expandable:
            self.mapped.add(address, address + size)
        else:
            self.plain[address] = size

    def holes(self) -> list[int]:
        """The sizes of the free stretches; slack of up to 1 MiB behind a block is part of it."""
        used = RangeSet()
        for address, block in self.live.items():
            used.add(address, address + block.size)
        stretches = [(address, address + size) for address, size in self.plain.items()] + list(self.mapped)
        return [end - start for low, high in stretches for start, end in used.holes(low, high) if end - start > MIB]


def snapshot_facts(
    recording: Recording, *, allowed_bytes: int | None = None, settings: Sequence[str] = OTHER_SETTINGS
) -> SnapshotFacts:
    """What a recording shows; `allowed_bytes`: what the process was allowed to reserve, if the log says so."""
    rows = recording.events.rows
    failed = [index for index in recording.events.landmarks if rows[index][0] == OUT_OF_MEMORY]
    at = failed[-1] if failed else _most_allocated(recording)
    state = _State(recording)
    for index in range(at + (0 if failed else 1)):
        state.play(index, *rows[index][:3])
    _, free, requested, _ = rows[at] if failed else (0, 0, 0, 0)
    holes = state.holes()
    stack = recording.stack(at) if failed else None
    return SnapshotFacts(
        name=recording.name,
        events=recording.events.count,
        settings=recording.settings,
        failed=bool(failed),
        requested_bytes=requested,
        device_free_bytes=free,
        allocated_bytes=state.allocated,
        reserved_bytes=max(state.reserved, state.allocated),
        failing_place=place_of(stack) if failed else "",
        failing_category=category_of(stack) if failed else "",
        by_category=_by_category(recording, state.live),
        holders=_holders(recording, state.live),
        holes=len(holes),
        largest_hole_bytes=max(holes, default=0),
        growing=_growing(recording, state, at),
        what_if=_what_if(recording, _bound(recording, state, requested, free, allowed_bytes), settings)
        if failed
        else (),
        at=at,
    )


def _most_allocated(recording: Recording) -> int:
    allocated = most = 0
    at = len(recording.events.rows) - 1
    sizes: dict[int, int] = {}
    for index, (action, address, size, _) in enumerate(recording.events.rows):
        if action == ALLOC:
            sizes[address] = size
            allocated += size
            if allocated > most:
                most, at = allocated, index
        elif action in (FREE, FREE_COMPLETED):
            allocated -= sizes.pop(address, size)
    return at


def _by_category(recording: Recording, live: Mapping[int, _Live]) -> dict[str, int]:
    sizes: dict[str, int] = defaultdict(int)
    for size, event in live.values():
        sizes[_BEFORE if event < 0 else category_of(recording.stack(event))] += size
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def _holders(recording: Recording, live: Mapping[int, _Live]) -> list[Holder]:
    held: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for size, event in live.values():
        stack = None if event < 0 else recording.stack(event)
        counted = held[(_BEFORE, "") if event < 0 else (place_of(stack), category_of(stack))]
        counted[0] += size
        counted[1] += 1
    holders = [Holder(place, category, size, blocks) for (place, category), (size, blocks) in held.items()]
    return sorted(holders, key=lambda holder: -holder.size_bytes)[:_MOST_HOLDERS]


def _growing(recording: Recording, state: _State, at: int) -> list[Growth]:
    """Places whose allocations of many different steps are all still there.

    Within one step much of one place stays alive, too: the activations that each layer saves, a gradient for each
    weight. Weights and optimizer state stay for good, but are made at one time.
    """
    if not recording.entries:
        return []
    starts = _step_starts(recording, at)
    kept: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for size, event in state.live.values():
        if event >= 0:
            stack = recording.stack(event)
            if category_of(stack) not in ("weights", "optimizer", "gradients"):
                kept[_whole_stack(stack)].append((event, size))
    found = []
    for blocks in kept.values():
        steps = len({bisect_right(starts, event) for event, _ in blocks})
        size = sum(size for _, size in blocks)
        if steps >= _FEWEST_STEPS and size >= state.allocated // 20:
            found.append(Growth(place_of(recording.stack(blocks[0][0])), size, len(blocks), steps))
    return sorted(found, key=lambda growth: -growth.size_bytes)


def _step_starts(recording: Recording, at: int) -> list[int]:
    """Where a step begins: the first allocation of a forward pass after some of a backward pass or of the optimizer.

    Autograd's own thread has no Python stack, so an allocation without one counts as backward.
    """
    starts = []
    backward = True
    seen: dict[int, bool] = {}  # by identity: torch writes a stack once and refers to it again
    for index in range(at):
        if recording.events.rows[index][0] == ALLOC:
            stack = recording.stack(index)
            known = seen.get(id(stack))
            if known is None:
                known = seen[id(stack)] = not stack or category_of(stack) in ("gradients", "optimizer")
            if backward and not known:
                starts.append(index)
            backward = known
    return starts


def _whole_stack(stack: object) -> str:
    return repr(stack)[:4000]


def _bound(recording: Recording, state: _State, requested: int, free: int, allowed: int | None) -> int:
    """What the allocator could have: what was reserved and what was still free, or what it was allowed.

    Where more was free than was asked for, a memory fraction forbade it; unless the log names it, nothing beyond the
    highest reserved is taken for granted.
    """
    if allowed is not None:
        return allowed
    if free < requested:
        return state.reserved + free
    return max(state.reserved, replay(recording).recorded_peak_reserved_bytes)


def _what_if(recording: Recording, bound: int, settings: Sequence[str]) -> list[WhatIf]:
    """Replay under other settings with as much memory as there was."""
    outcomes = []
    for text in settings:
        try:
            result = replay(recording, settings=text, limit_bytes=bound)
        except VramwiseError:
            continue
        if result.own_settings:
            continue
        served = result.failure is None and result.failures_served == result.recorded_failures
        outcomes.append(WhatIf(text, served, result.peak_reserved_bytes))
    return outcomes
