"""Expands the repetitions of a timeline, for consumers that need every event, such as a chart."""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.timeline import Action, Event, Phase, Repeat, Timeline

_ALLOC, _FREE, _PHASE = int(Action.ALLOC), int(Action.FREE), int(Action.PHASE)

# A chart or a snapshot of more events would take gigabytes and be of no use.
MOST_EVENTS = 1_000_000


def unroll(timeline: Timeline, most: int | None = None) -> Timeline:
    """Return the timeline with all turns of its repeats expanded. Tensors of later turns get new names.

    Turns that would bring the timeline above `most` events are left out.
    """
    if not timeline.repeats:
        return timeline
    unroller = _Unroller(timeline, most)
    unroller.write(0, len(timeline.events), timeline.repeats)
    return Timeline(events=unroller.events, tags=timeline.tags, phases=unroller.phases)


def unrolled_length(events: int, repeats: Sequence[Repeat]) -> int:
    """Return the number of events after all turns are expanded."""
    for repeat in repeats:
        events += unrolled_length(repeat.end - repeat.start, repeat.inner) * (repeat.times + 1)
        events -= repeat.end - repeat.start
    return events


class _Unroller:
    def __init__(self, timeline: Timeline, most: int | None) -> None:
        self.timeline = timeline
        self.events: list[Event] = []
        self.phases: list[Phase] = list(timeline.phases)
        self._most = most
        self._again = False  # within a turn after the first, whose tensors need new names
        self._shift = 0  # steps since the first turn
        self._fresh = 1 + max((event[1] for event in timeline.events), default=0)
        self._names: dict[int, int] = {}  # names in the original timeline → current names

    def write(self, start: int, end: int, repeats: Sequence[Repeat]) -> None:
        """Write these events, with the repeats among them expanded."""
        for repeat in repeats:
            self._copy(start, repeat.start)
            self.write(repeat.start, repeat.end, repeat.inner)
            self._turns(repeat)
            start = repeat.end
        self._copy(start, end)

    def _turns(self, repeat: Repeat) -> None:
        again, shift, names = self._again, self._shift, self._names
        for _ in range(repeat.times):
            if self._most is not None and len(self.events) + repeat.end - repeat.start > self._most:
                break
            self._again = True
            self._shift += repeat.steps
            for old, new in repeat.carry:
                names[old] = names.pop(new, new)
            self.write(repeat.start, repeat.end, repeat.inner)
        self._again, self._shift = again, shift

    def _copy(self, start: int, end: int) -> None:
        part = self.timeline.events[start:end]
        self.events += [self._renamed(event) for event in part] if self._names or self._again else part

    def _renamed(self, event: Event) -> Event:
        action, tensor = event[0], event[1]
        if action == _ALLOC:
            if not self._again:
                return event
            self._names[tensor] = self._fresh
            self._fresh += 1
            return event._replace(tensor=self._names[tensor])
        if action == _FREE and tensor in self._names:
            return event._replace(tensor=self._names.pop(tensor))
        if action == _PHASE and self._shift:
            name, step = self.timeline.phases[event[4]]
            self.phases.append(Phase(name, step + self._shift))
            return event._replace(tag=len(self.phases) - 1)
        return event
