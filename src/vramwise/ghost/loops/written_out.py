"""Turn a tape into its timeline."""

from __future__ import annotations

from vramwise.copied_events import COPY, WrittenOut, moved_repeat, places_written_out
from vramwise.ghost.tape import Tape
from vramwise.timeline import Timeline


def timeline_of(t: Tape) -> Timeline:
    """Return what was recorded so far; copied layers are stored as references to their events."""
    events = t.events[:]
    copies = [place for place, event in enumerate(events) if event[0] == COPY]
    if not copies:
        return Timeline(events=events, tags=t.tags, phases=t.phases, repeats=t.repeats, cuts=t.cuts, alike=t.alike)
    at = places_written_out(events, copies)
    first_of: dict[int, int] = {}  # one copy per pattern
    for place in copies:
        source = first_of.setdefault(events[place][3], t.alike.get(place, place))
        t.alike.setdefault(place, source)
    return Timeline(
        events=WrittenOut(events, t.copies, copies),
        tags=t.tags,
        phases=t.phases,
        repeats=[moved_repeat(repeat, at) for repeat in t.repeats],
        cuts=[at(cut) for cut in t.cuts],
        alike={at(place): at(source) for place, source in t.alike.items()},
    )
