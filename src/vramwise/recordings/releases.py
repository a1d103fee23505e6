"""Determine why a recording shows released memory: a call of empty_cache, or an allocation that found no room.

torch has no event for empty_cache: it shows as a run of segment_free and segment_unmap. An allocation that finds no
room releases memory too, and then grows or fails, so only a run right before a segment_alloc, a segment_map or an oom
can be of that kind. There the stack decides, if recorded; otherwise the arithmetic: memory is released under pressure
only if growing would exceed the limit, which is at least the recording's peak.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from vramwise.allocator.rounding import segment_size
from vramwise.allocator.settings import AllocatorSettings
from vramwise.recordings.recording import (
    ALLOC,
    OUT_OF_MEMORY,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    RecordedEvent,
    Recording,
    calls_of,
)

_GAIN = {SEGMENT_ALLOC: 1, SEGMENT_MAP: 1, SEGMENT_FREE: -1, SEGMENT_UNMAP: -1}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRun:
    """A run of events that release memory."""

    within_allocation: bool  # part of an allocation; otherwise a call of empty_cache
    unmaps: bool
    request: RecordedEvent | None  # the next allocation, or failed one


def find_releases(
    recording: Recording, initial_reserved: int, settings: AllocatorSettings, limit_bytes: int | None
) -> dict[int, ReleaseRun]:
    """Return every run by its first event. Without a known limit, the recording's peak is used.

    An allocation is assumed to need a whole segment: that is the size torch compares with the limit.
    """
    rows, landmarks = recording.events.rows, recording.events.landmarks
    levels = list(accumulate((_GAIN.get(rows[at][0], 0) * rows[at][2] for at in landmarks), initial=initial_reserved))
    ceiling = limit_bytes or max(levels)
    found: dict[int, ReleaseRun] = {}
    end = request_at = 0
    for level, start in zip(levels, landmarks, strict=False):
        if start < end or rows[start][0] not in (SEGMENT_FREE, SEGMENT_UNMAP):
            continue
        end = start
        while end < len(rows) and rows[end][0] in (SEGMENT_FREE, SEGMENT_UNMAP):
            end += 1
        before_growth = end < len(rows) and rows[end][0] in (SEGMENT_ALLOC, SEGMENT_MAP, OUT_OF_MEMORY)
        request_at = _next_request(rows, max(end, request_at))
        request = rows[request_at] if request_at < len(rows) else None
        needed = segment_size(request[2], settings) if request else 0
        pressed = level + needed > ceiling or _collects(level, ceiling, settings)
        found[start] = ReleaseRun(
            within_allocation=before_growth and _is_within_allocation(recording, start, end, pressed),
            unmaps=any(action == SEGMENT_UNMAP for action, _, _, _ in rows[start:end]),
            request=request,
        )
    return found


def _next_request(rows: Sequence[RecordedEvent], at: int) -> int:
    while at < len(rows) and rows[at][0] not in (ALLOC, OUT_OF_MEMORY):
        at += 1
    return at


def _collects(level: int, ceiling: int, settings: AllocatorSettings) -> bool:
    threshold = settings.garbage_collection_threshold
    return threshold > 0.0 and level > int(threshold * ceiling)


def _is_within_allocation(recording: Recording, start: int, end: int, pressed: bool) -> bool:
    # Compare the checked calls, not the stacks: untrusted content may take forever to compare.
    calls = calls_of(recording.stack(start))
    if any(call.name == "empty_cache" for call in calls):
        return False
    return pressed or bool(calls and calls == calls_of(recording.stack(end)))
