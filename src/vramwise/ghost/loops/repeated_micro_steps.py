"""Micro-steps that were seen before: one of the same shape that finds the same gradients asks for the same memory.

The first of a run makes things that libraries keep from then on (workspaces); later ones find them, so these are left
out of what is remembered. Only the loss and the gradients outlive a micro-step: where anything else does, or anything
but the last loss is freed, it is no such micro-step, and is run each time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from vramwise.ghost.tape import Parameter, Storage, Tape, Tensor
from vramwise.timeline import Action, Event, Phase

_make = tuple.__new__
_ALLOC, _FREE, _PHASE = int(Action.ALLOC), int(Action.FREE), int(Action.PHASE)

# In place of numbers that count from the micro-step's first tensor: the loss of the one before, and none at all.
_LAST_LOSS, _NONE = -1, -2


Row = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gradient:
    """A gradient that was made: whose it is, its form, and its storage's number and event, counted from the start."""

    parameter: Parameter
    form: Tensor
    nbytes: int
    number: int
    event: int


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
        written = t.events[start:]
        events = relative(written, first, kept, last, phases)
        cut = moved_cuts(t.cuts[cuts:], start, written, kept)
        if last < 0:
            returned = moved_cuts([self._returned], start, written, kept)[0]
            events.insert(returned, (_FREE, _LAST_LOSS, loss.storage.nbytes, 0, 0))
            cut = [place + (place > returned) for place in cut]
        places = {row[1]: place for place, row in enumerate(events) if row[0] == _ALLOC}
        gradients = self._gradients(first, kept, places)
        number = moved(loss.storage.number, first, kept)
        if not _leaves(events, {number, *[gradient.number for gradient in gradients]}):
            return
        if not kept and last >= 0:
            self._written[kind] = start
        self._known[kind] = _MicroStep(
            events=events,
            phases=t.phases[phases:],
            cuts=cut,
            count=t.count - first - len(kept),
            loss=number,
            loss_event=places[number],
            gradients=gradients,
        )

    def _gradients(self, first: int, kept: list[int], places: dict[int, int]) -> list[_Gradient]:
        """The gradients that were made since."""
        found = []
        for parameter in self._trainable:
            grad = parameter.grad
            if grad is None or grad.storage is None or grad.storage.number < first:
                continue
            number = moved(grad.storage.number, first, kept)
            form, nbytes = like(grad, None), grad.storage.nbytes
            found.append(_Gradient(parameter=parameter, form=form, nbytes=nbytes, number=number, event=places[number]))
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
            if number == _LAST_LOSS
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
                storage = already_written(t, gradient.number + base, gradient.nbytes, gradient.event + start)
                storages[gradient.number] = storage
            gradient.parameter.grad = like(gradient.form, storage)
        return True


def kept_by_libraries(t: Tape, first: int) -> list[int]:
    """The numbers of what was made since and stays until the run ends."""
    return sorted(
        [storage.number for held in (t.workspaces, t.once) for storage in held.values() if storage.number >= first]
    )


def moved(number: int, first: int, kept: list[int]) -> int:
    """A number counted from the first, as if what libraries keep had been there before."""
    return number - first - bisect_left(kept, number)


def relative(events: Sequence[Event], first: int, kept: list[int], last: int, phases: int) -> list[Row]:
    """Events with everything counted from the start, without the requests for what libraries keep."""
    # nearly all are of tensors made after whatever is kept: those are worth a line of their own
    after = kept[-1] if kept else first - 1
    low = first + len(kept)
    return [
        (action, number - low, size, stream, tag)
        if number > after and action <= _FREE
        else _row((action, number, size, stream, tag), first, kept, last, phases)
        for action, number, size, stream, tag in events
        if action or number > after or number not in kept
    ]


def moved_cuts(cuts: Sequence[int], start: int, written: Sequence[Event], kept: list[int]) -> list[int]:
    """Positions counted from the start, as if what libraries keep had been there before."""
    gone = []
    if kept:
        gone = [place for place, event in enumerate(written) if event[0] == _ALLOC and event[1] in kept]
    return [position - start - bisect_left(gone, position - start) for position in cuts]


def _row(event: Row, first: int, kept: list[int], last: int, phases: int) -> Row:
    """An event with everything counted from the start; what is neither from here nor the last loss has no number."""
    action, number, size, stream, tag = event
    if action > _FREE:
        return (action, _NONE, size, stream, tag - phases if action == _PHASE else tag)
    if number >= first:
        return (action, moved(number, first, kept), size, stream, tag)
    return (action, _LAST_LOSS if number == last else _NONE, size, stream, tag)


def _leaves(events: list[Row], left: set[int]) -> bool:
    """Whether these are all that is left, and nothing but the last loss was freed."""
    made = {row[1] for row in events if row[0] == _ALLOC}
    freed = {row[1] for row in events if row[0] == _FREE}
    return made - freed == left and freed - made == {_LAST_LOSS}


def like(tensor: Tensor, storage: Storage | None) -> Tensor:
    """A tensor of the same form."""
    twin = Tensor(storage, tensor.shape, tensor.numel, tensor.dtype)
    twin.view, twin.heads_first = tensor.view, tensor.heads_first
    return twin


def already_written(t: Tape, number: int, nbytes: int, event: int) -> Storage:
    """A storage whose allocation is among the events already."""
    storage = Storage.__new__(Storage)
    storage.events, storage.number, storage.nbytes, storage.event = t.events, number, nbytes, event
    return storage
