"""Runs some of a model's identical layers, and writes the events that the others would have made.

Two sampled units run next to each other. What both do, apart from tensor numbers, the units between them do too. If
they differ, or if the pass leaves anything unexpected, everything is undone and all layers run from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from vramwise.ghost.layers.again import Written, write_again, written
from vramwise.ghost.layers.expansion import Expansion
from vramwise.ghost.layers.forms import FEWEST_LEFT_OUT, SAMPLED, Names, Units, forms_of, units_of
from vramwise.ghost.layers.passes import Unlike
from vramwise.ghost.layers.relations import Numbers, Place
from vramwise.ghost.model.causal_lm import Body
from vramwise.ghost.tape import Parameter, Storage, Tape, Tensor
from vramwise.timeline import Action, Event

_ALLOC, _FREE = int(Action.ALLOC), int(Action.FREE)


class _Gradient(NamedTuple):
    """A gradient that every unit gets: the block in the unit, the parameter of the block, and where it was made."""

    part: int
    parameter: int
    place: Place


class Layers:
    """The layers of one model, and of others that run beside it, such as a reference model."""

    def __init__(self, t: Tape, bodies: Sequence[Body], trainable: Sequence[Parameter]) -> None:
        self._t = t
        self._bodies = bodies
        self._trainable = trainable
        self._units: Units | None = None
        self._names: list[Names] = []
        self._written: dict[Hashable, Written] = {}
        if any(len(body.blocks) < SAMPLED + FEWEST_LEFT_OUT for body in bodies):
            return
        found = [forms_of(body) for body in bodies]
        units = {units_of(forms) for forms, _ in found}
        if len(units) == 1 and all(names.labels for _, all_names in found for names in all_names):
            self._units, self._names = units.pop(), found[0][1]

    def run(self, work: Callable[[], Tensor], kind: Hashable, step: int) -> Tensor:
        """Run `work`, which goes through the layers and leaves only its result and gradients, and return its result.

        `kind` identifies the work: if work of the same kind was recorded, its events are written again instead.
        """
        if self._units is None or self._t.work is not None:
            return work()
        t = self._t
        kind = (kind, t.training, tuple([parameter.grad is None for parameter in self._trainable]))
        before = self._written.get(kind)
        # if the first layer continued an earlier part, the recorded pass does not contain its beginning
        if before is not None and (before.began.part == t.part or before.began.part != self._names[0].part):
            return write_again(t, before, step)
        saved, once = t.save(), {name: storage.number for name, storage in t.once.items()}
        held = {*t.workspaces}, {*t.once}
        result = self._sampled(work, self._units)
        try:
            expansion = Expansion(t, self._units, self._names, saved)
            gradients = self._gradients(expansion.numbers)
            live = self._live(result, saved.tensors)
            alone = _check_left(t.events[saved.events :], live)
            if expansion.left != {gradient.place for gradient in gradients}:
                raise Unlike("something else is left by each layer")
        except Unlike:
            live, expansion, alone = {}, None, False
        settled = alone and once == {name: storage.number for name, storage in t.once.items()}
        if expansion is None:
            # no references to undone tensors may remain
            self._units = None
            del result
            self._let_go(saved.tensors, *held)
            t.restore(saved)
            return work()
        expansion.write()
        self._renumber(expansion, live)
        self._spread(expansion.numbers, gradients)
        if settled:
            new = [storage for place, storage in t.workspaces.items() if place not in held[0]]
            found = written(t, saved, step, result, self._trainable, new)
            self._written |= {} if found is None else {kind: found}
        return result

    def _sampled(self, work: Callable[[], Tensor], units: Units) -> Tensor:
        for body in self._bodies:
            body.running[:] = units.running(len(body.blocks))
        try:
            return work()
        finally:
            for body in self._bodies:
                body.running.clear()

    def _gradients(self, numbers: Numbers) -> list[_Gradient]:
        """Return the gradients that the sampled units got. Raises Unlike if they differ."""
        assert self._units is not None
        found = []
        for part, (low, high) in enumerate(zip(self._units.blocks(1), self._units.blocks(-2), strict=True)):
            pairs = zip(self._names[low].parameters, self._names[high].parameters, strict=True)
            for place, parameters in enumerate(pairs):
                one, other = [_made(parameter, numbers) for parameter in parameters]
                if one is None and other is None:
                    continue
                if one is None or other is None or one[0] != other[0] or (one[1], other[1]) != (0, 1):
                    raise Unlike("another gradient")
                found.append(_Gradient(part, place, one[0]))
        return found

    def _live(self, result: Tensor, first: int) -> dict[int, Storage]:
        """Return the storages made since tensor `first` that may be left: result, gradients, library workspaces."""
        storages = [result.storage, *self._t.workspaces.values(), *self._t.once.values()]
        storages += [parameter.grad.storage for parameter in self._trainable if parameter.grad is not None]
        return {one.number: one for one in storages if one is not None and one.number >= first}

    def _renumber(self, expansion: Expansion, live: dict[int, Storage]) -> None:
        """Give live storages the numbers and positions that they have in the run of all layers."""
        for number, storage in live.items():
            storage.number = expansion.numbers.moved(number)
            storage.event = expansion.at(storage.event)

    def _spread(self, numbers: Numbers, gradients: list[_Gradient]) -> None:
        """Set the gradients of the layers that did not run."""
        assert self._units is not None
        forms = [self._names[self._units.blocks(1)[part]].parameters[place].grad for part, place, _ in gradients]
        for unit in range(numbers.low + 1, numbers.high) if gradients else ():
            parameters = [self._names[block].parameters for block in self._units.blocks(unit)]
            storages: dict[Place, Storage] = {}
            for (part, place, made_at), form in zip(gradients, forms, strict=True):
                assert form is not None
                assert form.storage is not None
                if made_at not in storages:
                    number = numbers.of(made_at, unit)
                    storages[made_at] = Storage.already_written(self._t, number, form.storage.nbytes)
                parameters[part][place].grad = _like(form, storages[made_at])

    def _let_go(self, first: int, workspaces: set[tuple[bool, str]], once: set[str]) -> None:
        """Drop all gradients and library storages made since tensor `first`."""
        for parameter in self._trainable:
            if parameter.grad is not None and parameter.grad.storage and parameter.grad.storage.number >= first:
                parameter.grad = None
        for place in [place for place in self._t.workspaces if place not in workspaces]:
            del self._t.workspaces[place]
        for name in [name for name in self._t.once if name not in once]:
            del self._t.once[name]


def _made(parameter: Parameter, numbers: Numbers) -> tuple[Place, int] | None:
    """Return where a parameter's gradient was made, or None if none was. Raises Unlike if no sampled unit made it."""
    grad = parameter.grad
    if grad is None or grad.storage is None or grad.storage.number < numbers.passes.spans[0].first:
        return None
    found = numbers.place(grad.storage.number)
    if found is None:
        raise Unlike("a gradient from elsewhere")
    return found


def _check_left(events: Sequence[Event], live: dict[int, Storage]) -> bool:
    """Raise Unlike if anything other than `live` is left. Returns whether only tensors made here were freed."""
    made = {event[1] for event in events if event[0] == _ALLOC}
    freed = {event[1] for event in events if event[0] == _FREE}
    if made - freed != live.keys():
        raise Unlike("something else is left")
    return freed <= made


def _like(tensor: Tensor, storage: Storage) -> Tensor:
    """Return a tensor like this one on another storage."""
    twin = Tensor(storage, tensor.shape, tensor.numel, tensor.dtype)
    twin.view, twin.heads_first = tensor.view, tensor.heads_first
    return twin
