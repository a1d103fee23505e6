"""From a tape to its timeline."""

from __future__ import annotations

from vramwise.ghost.copies import COPY, WrittenOut, moved_repeat, places_written_out
from vramwise.ghost.tape import Tape
from vramwise.timeline import Timeline


def timeline_of(t: Tape) -> Timeline:
    """What is written so far; copies of layers stand for their events."""
    events = t.events[:]
    if not any(event[0] == COPY for event in events):
        return Timeline(events=events, tags=t.tags, phases=t.phases, repeats=t.repeats, cuts=t.cuts, alike=t.alike)
    at = places_written_out(events)
    return Timeline(
        events=WrittenOut(events, t.copies),
        tags=t.tags,
        phases=t.phases,
        repeats=[moved_repeat(repeat, at) for repeat in t.repeats],
        cuts=[at(cut) for cut in t.cuts],
        alike={at(place): at(source) for place, source in t.alike.items()},
    )
