"""Detect when a recorded program switched expandable segments on and off (as RL trainers do around inference).

torch records no such event. The signs: memory grows by segment_map only in expandable mode and by segment_alloc only in
plain mode, and plain mode serves no request from an expandable segment. Between two signs of different modes, the
switch is placed right after the last sign of expandable mode, or right before the first.
"""

from __future__ import annotations

from vramwise.recordings.ranges import RangeSet
from vramwise.recordings.recording import ALLOC, SEGMENT_ALLOC, SEGMENT_MAP, Recording


def mode_switches(recording: Recording, expandable_at_start: bool) -> dict[int, bool]:
    """Return event → expandable mode from there on. Empty for most recordings, which grow in one way only."""
    rows, landmarks = recording.events.rows, recording.events.landmarks
    grows = {rows[at][0] for at in landmarks}
    if not {SEGMENT_ALLOC, SEGMENT_MAP} <= grows:
        return {}
    expandable_memory = RangeSet()
    for segment in recording.segments:
        if segment.expandable:
            expandable_memory.add(segment.address, segment.address + segment.size)
    for at in landmarks:
        action, address, size, _ = rows[at]
        if action == SEGMENT_MAP:
            expandable_memory.add(address, address + size)
    switches: dict[int, bool] = {}
    mode = expandable_at_start
    last_sign = -1
    for at, (action, address, _, _) in enumerate(rows):
        if action == SEGMENT_MAP or (action == ALLOC and address in expandable_memory):
            if not mode:
                switches[at] = mode = True
            last_sign = at
        elif action == SEGMENT_ALLOC and mode:
            switches[last_sign + 1] = mode = False
    return switches
