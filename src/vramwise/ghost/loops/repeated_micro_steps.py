"""Micro-steps that were seen before: one of the same shape that finds the same gradients asks for the same memory.

The first of a run makes things that libraries keep from then on (workspaces); later ones find them, so these are left
out of what is remembered. Only the loss and the gradients outlive a micro-step: where anything else does, or anything
but the last loss is freed, it is no such micro-step, and is run each time.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from vramwise.ghost.copies import Row
from vramwise.ghost.loops.remembered import (
    LAST_LOSS,
    already_written,
    kept_by_libraries,
    like,
    made_and_freed,
    moved,
    moved_cuts,
    relative,
)
from vramwise.ghost.tape import NOWHERE, Parameter, Storage, Tape, Tensor
from vramwise.timeline import Action, Event, Phase

_make = tuple.__new__
_ALLOC, _FREE, _PHASE = int(Action.ALLOC), int(Action.FREE), int(Action.PHASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gradient:
    """A gradient that was made: whose it is, its form, and its storage's number, counted from the start."""

    parameter: Parameter
    form: Tensor
    nbytes: int
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _MicroStep:
    """What is remembered: events with numbers, phases and cuts counted from the start."""

    events: list[Row]
    phases: list[Phase]
    cuts: list[int]
    count: int
    loss: int
    loss_event: int
    gradients: list[_Gradient]


class MicroSteps:
    """Remembers one micro-step of each kind."""

    def __init__(self, t: Tape, trainable: Sequence[Parameter]) -> None:
        self._t = t
        self._trainable = trainable
        self._known: dict[Hashable, _MicroStep] = {}
        self._written: dict[Hashable, int] = {}  # where one of each kind stands that is as it is remembered
        self._start = (0, 0, 0, 0)
        self._returned = 0

    def begin(self) -> None:
        """A micro-step starts."""
        t = self._t
        self._start = (len(t.events), t.count, len(t.phases), len(t.cuts))

    def returned(self) -> None:
        """The new loss has taken the last one's place."""
        self._returned = len(self._t.events)

    def end(self, kind: Hashable, last: int, loss: Tensor) -> None:
        """It has ended: remember it, if it left nothing but its loss and gradients. `last`: the last loss' number."""
        t = self._t
        start, first, phases, cuts = self._start
        assert loss.storage is not None
        kept = kept_by_libraries(t, first)
        events = relative(t, start, first, kept, last, phases)
        written = t.events[start:]
        cut = moved_cuts(t.cuts[cuts:], start, written, kept)
        if last < 0:
            returned = moved_cuts([self._returned], start, written, kept)[0]
            events.insert(returned, (_FREE, LAST_LOSS, loss.storage.nbytes, 0, 0))
            cut = [place + (place > returned) for place in cut]
        gradients = self._gradients(first, kept)
        number = moved(loss.storage.number, first, kept)
        if not _leaves(t, events, {number, *[gradient.number for gradient in gradients]}):
            return
        if not kept and last >= 0:
            self._written[kind] = start
        self._known[kind] = _MicroStep(
            events=events,
            phases=t.phases[phases:],
            cuts=cut,
            count=t.count - first - len(kept),
            loss=number,
            loss_event=next(place for place, row in enumerate(events) if row[0] == _ALLOC and row[1] == number),
            gradients=gradients,
        )

    def _gradients(self, first: int, kept: list[int]) -> list[_Gradient]:
        """The gradients that were made since."""
        found = []
        for parameter in self._trainable:
            grad = parameter.grad
            if grad is None or grad.storage is None or grad.storage.number < first:
                continue
            number = moved(grad.storage.number, first, kept)
            form, nbytes = like(grad, None), grad.storage.nbytes
            found.append(_Gradient(parameter=parameter, form=form, nbytes=nbytes, number=number))
        return found

    def replay(self, kind: Hashable, loss: Tensor | None, step: int) -> bool:
        """Write the remembered micro-step once more, if there is one; the loss becomes its loss."""
        known = self._known.get(kind)
        if known is None or loss is None or loss.storage is None:
            return False
        t = self._t
        start, base, phase = len(t.events), t.count, len(t.phases)
        last = loss.storage.number
        t.events += [
            _make(Event, (action, number + base, size, stream, tag))
            if number >= 0
            else _make(Event, (action, last, size, stream, tag))
            if number == LAST_LOSS
            else _make(Event, (action, 0, 0, 0, tag + phase if action == _PHASE else 0))
            for action, number, size, stream, tag in known.events
        ]
        t.phases += [Phase(name, step) for name, _ in known.phases]
        t.copy_cuts(known.cuts, start, self._written.get(kind))
        self._written.setdefault(kind, start)
        t.count += known.count
        loss.storage.number, loss.storage.event = known.loss + base, known.loss_event + start
        storages: dict[int, Storage] = {}
        for gradient in known.gradients:
            storage = storages.get(gradient.number)
            if storage is None:
                storage = already_written(t, gradient.number + base, gradient.nbytes, NOWHERE)
                storages[gradient.number] = storage
            gradient.parameter.grad = like(gradient.form, storage)
        return True


def _leaves(t: Tape, events: list[Row], left: set[int]) -> bool:
    """Whether these are all that is left, and nothing but the last loss was freed."""
    made, freed = made_and_freed(t, events)
    return made - freed == left and freed - made == {LAST_LOSS}
