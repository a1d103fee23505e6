"""Steps that repeat: a step whose shapes were seen before leaves the same events, under other tensor numbers.

Valid from the second step on, when optimizer states and workspaces exist. Tensors that outlive a step (batches, the
count of labels, the loss, the gradient norm) are its *carry*: a recorded step frees the carry it found and leaves a
new one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from vramwise.ghost.tape import Storage, Tape
from vramwise.timeline import Action, Event, Phase, Repeat

_make = tuple.__new__
_FREE, _PHASE = int(Action.FREE), int(Action.PHASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The events of one step, the numbers they used, and the carry before and after."""

    events: list[Event]
    phases: list[Phase]
    repeats: list[Repeat]
    cuts: list[int]
    start: int
    first: int
    count: int
    before: list[int]
    before_bytes: list[int]
    after: list[tuple[int, int]]  # numbers and bytes


class Recorder:
    """Keeps one recording for each kind of step."""

    def __init__(self, t: Tape) -> None:
        self.t = t
        self.known: dict[Hashable, Recording] = {}
        # the step just written once more, while nothing has come after it
        self._last: Repeat | None = None
        self._start = (0, 0, 0, 0, 0)
        self._before: list[int] = []
        self._before_bytes: list[int] = []

    def begin(self, carry: Sequence[Storage]) -> None:
        """A step starts."""
        t = self.t
        self._start = (len(t.events), t.count, len(t.phases), len(t.repeats), len(t.cuts))
        self._before = [storage.number for storage in carry]
        self._before_bytes = [storage.nbytes for storage in carry]

    def end(self, kind: Hashable, carry: Sequence[Storage]) -> None:
        """It has ended: remember it if its carry has the form that the next one will find."""
        t = self.t
        if len(carry) != len(self._before):
            return
        events, first, phases, repeats, cuts = self._start
        self.known[kind] = Recording(
            events=t.events[events:],
            phases=t.phases[phases:],
            repeats=t.repeats[repeats:],
            cuts=t.cuts[cuts:],
            start=events,
            first=first,
            count=t.count - first,
            before=self._before,
            before_bytes=self._before_bytes,
            after=[(storage.number, storage.nbytes) for storage in carry],
        )

    def replay(self, kind: Hashable, carry: Sequence[Storage], step: int) -> bool:
        """Write the recorded step once more, if there is one; the carry's storages take the new numbers."""
        known = self.known.get(kind)
        self._last = None
        if known is None or len(known.before) != len(carry):
            return False
        t = self.t
        shift, first = t.count - known.first, known.first
        found = [(storage.number, storage.nbytes) for storage in carry]
        freed = dict(zip(known.before, found, strict=True))
        phase_shift = len(t.phases) - next((event[4] for event in known.events if event[0] == _PHASE), 0)
        moved = len(t.events) - known.start
        begun = len(t.events)
        repeats = [
            Repeat(start + moved, end + moved, times, tuple([(old + shift, new + shift) for old, new in carry]))
            for start, end, times, carry, _, _ in known.repeats
        ]
        t.repeats += repeats
        same = [nbytes for _, nbytes in found] == known.before_bytes
        t.copy_cuts([position - known.start for position in known.cuts], begun, known.start if same else None)
        t.phases += [Phase(name, step) for name, _ in known.phases]
        t.events += [
            _make(Event, (action, number + shift, size, stream, tag))
            if number >= first
            else _make(Event, (action, *freed[number], stream, tag))
            if action == _FREE
            else _make(Event, (action, 0, 0, 0, tag + phase_shift if action == _PHASE else 0))
            for action, number, size, stream, tag in known.events
        ]
        t.count += known.count
        for storage, (number, nbytes) in zip(carry, known.after, strict=True):
            storage.number = number + shift
            storage.nbytes = nbytes
        if [nbytes for _, nbytes in found] == [nbytes for _, nbytes in known.after]:
            pairs = zip(found, known.after, strict=True)
            carried = tuple([(old, new + shift) for (old, _), (new, _) in pairs])
            self._last = Repeat(begun, len(t.events), 0, carried, 1, tuple(repeats))
        return True

    def once_more(self, times: int) -> bool:
        """The step just replayed happens so many times more: one entry instead of its events, if that is the same."""
        if self._last is None or not times or self._last.end != len(self.t.events):
            return False
        del self.t.repeats[len(self.t.repeats) - len(self._last.inner) :]
        self.t.repeats.append(self._last._replace(times=times))
        return True
