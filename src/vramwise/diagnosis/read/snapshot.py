"""Turn a torch memory snapshot into facts: who held memory at the failure, the holes, what grew, replays.

The moment of interest is the last failed request, or the peak of allocated memory if none failed. Snapshots are often
dumped after the failure, when the stack has unwound and its tensors are gone; the state is therefore rebuilt from the
events, never taken from the segments at the end. Reading the file is up to `allocator.reader`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from vramwise.allocator.settings import parse_settings
from vramwise.diagnosis.read.frames import Origins
from vramwise.diagnosis.read.kept import Growth, growing_places
from vramwise.errors import VramwiseError
from vramwise.recordings.initial import initial_segments
from vramwise.recordings.ranges import RangeSet
from vramwise.recordings.recording import (
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
from vramwise.recordings.replay import USUAL_TORCH, replay
from vramwise.units import MIB

# Settings to replay with. The empty text means torch's defaults.
OTHER_SETTINGS = ("expandable_segments:True", "", "roundup_power2_divisions:16", "garbage_collection_threshold:0.8")
_MOST_HOLDERS = 12
_BEFORE = "allocated before the recording began"


class Holder(NamedTuple):
    """Memory held by one place in the code."""

    place: str
    category: str
    size_bytes: int
    blocks: int


class WhatIf(NamedTuple):
    """The outcome with other settings. `served`: the failed request would have succeeded."""

    settings: str
    served: bool
    peak_reserved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFacts:
    """What a recording shows at the moment of interest. `failed`: a request failed at that moment."""

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
    bound_bytes: int = 0  # the memory the allocator could use, as far as known; 0 if no request failed
    at: int = field(repr=False, default=-1)  # index of the moment in the recording's events

    @property
    def unallocated_bytes(self) -> int:
        """Bytes reserved but not held by any tensor."""
        return self.reserved_bytes - self.allocated_bytes


class _Live(NamedTuple):
    size: int
    event: int  # -1: from before the recording


class _State:
    """The allocator's memory, updated event by event."""

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
        """Apply one event."""
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
        """Return the sizes of the free ranges over 1 MiB; smaller gaps count as part of the block before them."""
        used = RangeSet()
        for address, block in self.live.items():
            used.add(address, address + block.size)
        stretches = [(address, address + size) for address, size in self.plain.items()] + list(self.mapped)
        return [end - start for low, high in stretches for start, end in used.holes(low, high) if end - start > MIB]


def snapshot_facts(
    recording: Recording, *, allowed_bytes: int | None = None, settings: Sequence[str] = OTHER_SETTINGS
) -> SnapshotFacts:
    """Return what a recording shows. `allowed_bytes`: the process's limit, if the log names one."""
    rows = recording.events.rows
    failed = [index for index in recording.events.landmarks if rows[index][0] == OUT_OF_MEMORY]
    at = failed[-1] if failed else _most_allocated(recording)
    state = _State(recording)
    for index in range(at + (0 if failed else 1)):
        state.play(index, *rows[index][:3])
    requested = rows[at][2] if failed else 0
    free = _device_free(recording, at) if failed else 0
    holes = state.holes()
    bound = _bound(recording, state, requested, free, allowed_bytes) if failed else 0
    origins = Origins(recording)
    failing = origins.of(at) if failed else None
    return SnapshotFacts(
        name=recording.name,
        events=recording.events.count,
        settings=recording.settings,
        failed=bool(failed),
        requested_bytes=requested,
        device_free_bytes=free,
        allocated_bytes=state.allocated,
        reserved_bytes=max(state.reserved, state.allocated),
        failing_place=failing.place if failing else "",
        failing_category=failing.category if failing else "",
        by_category=_by_category(origins, state.live),
        holders=_holders(origins, state.live, recording.notes()),
        holes=len(holes),
        largest_hole_bytes=max(holes, default=0),
        growing=growing_places(recording, origins, state.live.values(), at),
        what_if=_what_if(recording, bound, settings) if failed else (),
        bound_bytes=bound,
        at=at,
    )


def _device_free(recording: Recording, failed: int) -> int:
    """Return the free device memory when a request failed; 0 if the recording does not say."""
    entry = recording.entries[recording.events.sources[failed]] if recording.entries else {}
    free = entry.get("device_free")
    return free if type(free) is int and free > 0 else 0


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


def _by_category(origins: Origins, live: Mapping[int, _Live]) -> dict[str, int]:
    sizes: dict[str, int] = defaultdict(int)
    for size, event in live.values():
        sizes[_BEFORE if event < 0 else origins.of(event).category] += size
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def _holders(origins: Origins, live: Mapping[int, _Live], notes: Mapping[int, str]) -> list[Holder]:
    held: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for size, event in live.values():
        category, place = ("", _BEFORE) if event < 0 else origins.of(event)[:2]
        if event in notes:
            place = f"{notes[event]} ({place})"
        counted = held[place, category]
        counted[0] += size
        counted[1] += 1
    holders = [Holder(place, category, size, blocks) for (place, category), (size, blocks) in held.items()]
    return sorted(holders, key=lambda holder: -holder.size_bytes)[:_MOST_HOLDERS]


def _bound(recording: Recording, state: _State, requested: int, free: int, allowed: int | None) -> int:
    """Return the memory the allocator could use: its limit, or what was reserved plus what was still free.

    If more was free than requested, a memory fraction applied, which only the log names. Whatever was reserved earlier
    could be used in any case.
    """
    if allowed is not None:
        return allowed
    reachable = state.reserved + (free if free < requested else 0)
    return max(reachable, replay(recording).recorded_peak_reserved_bytes)


def _what_if(recording: Recording, bound: int, settings: Sequence[str]) -> list[WhatIf]:
    """Replay with other settings and the same amount of memory."""
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
