"""Writes an earlier pass once more: the same shapes through the same model make the same requests.

The workspaces that the matrix library makes at its first product, and keeps, are not repeated. A pass that leaves or
frees anything else that other passes use (tables, buffers) is not written again; it runs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from vramwise.copied_events import COPY, Variant
from vramwise.ghost.dtypes import DType
from vramwise.ghost.tape import NOWHERE, Parameter, Saved, Storage, Tape, Tensor
from vramwise.timeline import Action, Event, Phase

_make = tuple.__new__
_FREE, _PHASE = int(Action.FREE), int(Action.PHASE)


class _Form(NamedTuple):
    """A tensor without a reference to its storage. `number`, `nbytes` and `event` are those of the storage."""

    shape: tuple[int, ...]
    numel: int
    dtype: DType
    view: bool
    heads_first: bool
    number: int
    nbytes: int
    event: int


class Written(NamedTuple):
    """A pass on the tape: where it began and ended, and what it left. `dropped`: workspaces that are not made again."""

    began: Saved
    ended: Saved
    step: int
    dropped: tuple[_Form, ...]
    result: _Form
    gradients: tuple[tuple[Parameter, _Form], ...]


def written(
    t: Tape, began: Saved, step: int, result: Tensor, trainable: Sequence[Parameter], kept: Sequence[Storage]
) -> Written | None:
    """Return the pass since `began`, or None if it cannot be written again.

    The pass must leave nothing but its result, new gradients and workspaces (`kept`).
    """
    gradients = [one for one in trainable if one.grad is not None and not _older(one.grad.storage, began)]
    if result.node is not None or any(phase.step != step for phase in t.phases[began.phases :]):
        return None
    result_form, *forms = [_form(one) for one in (result, *[parameter.grad for parameter in gradients])]
    dropped = [_form(Tensor(storage, (), 0, result.dtype)) for storage in sorted(kept, key=lambda one: one.number)]
    if result_form is None or None in forms or any(form is None or form.event == NOWHERE for form in dropped):
        return None
    return Written(
        began,
        t.save(),
        step,
        tuple([form for form in dropped if form is not None]),
        result_form,
        tuple([(parameter, form) for parameter, form in zip(gradients, forms, strict=True) if form is not None]),
    )


def _older(storage: Storage | None, began: Saved) -> bool:
    return storage is not None and storage.number < began.tensors


def _form(tensor: Tensor | None) -> _Form | None:
    if tensor is None or tensor.storage is None:
        return None
    storage = tensor.storage
    of_storage = (storage.number, storage.nbytes, storage.event)
    return _Form(tensor.shape, tensor.numel, tensor.dtype, tensor.view, tensor.heads_first, *of_storage)


def write_again(t: Tape, before: Written, step: int) -> Tensor:
    """Write the events of a pass once more, with new numbers. Sets the parameters' gradients and returns the result."""
    began, ended = before.began, before.ended
    number = _Shift(t.count - began.tensors, [form.number for form in before.dropped])
    place = _Shift(len(t.events) - began.events, [form.event for form in before.dropped])
    _write_events(t, before, step, number)
    _write_cuts(t, before, place)
    t.count = number(ended.tensors)
    t.stand(ended)
    storages: dict[int, Storage] = {}
    for parameter, form in before.gradients:
        parameter.grad = _tensor(t, form, storages, number, place)
    return _tensor(t, before.result, storages, number, place)


class _Shift(NamedTuple):
    """Maps a number (or position) of the pass to that of its repetition, in which some are left out."""

    by: int
    left_out: list[int]

    def __call__(self, number: int) -> int:
        return number + self.by - bisect_left(self.left_out, number)


def _write_events(t: Tape, before: Written, step: int, number: _Shift) -> None:
    by, left_out = number
    old = t.events[before.began.events : before.ended.events]
    found: list[Event] = [
        _make(Event, (action, tensor + by - bisect_left(left_out, tensor), size, stream, tag))
        if action <= _FREE
        else _written_once_more(t, (action, tensor, size, stream, tag), step, number)
        for action, tensor, size, stream, tag in old
        if action or tensor not in left_out
    ]
    t.events += found


def _written_once_more(t: Tape, event: tuple[int, int, int, int, int], step: int, number: _Shift) -> Event:
    """Return a phase mark with the current step, or a copy with its new numbers. Other events stay as they are."""
    action, tensor, size, stream, tag = event
    if action == _PHASE:
        t.phases.append(Phase(t.phases[tag].name, step))
        return Event(action, tensor, size, stream, len(t.phases) - 1)
    if action != COPY:
        return Event(*event)
    first = number(tensor)
    if not number.left_out:
        return Event(action, first, size, stream, tag)
    outer, tags = t.copies.variants[tag]
    return t.copies.add(stream, first, Variant(tuple([number(tensor + other) - first for other in outer]), tags))


def _write_cuts(t: Tape, before: Written, place: _Shift) -> None:
    """Record the cuts of the repetition, and that a stretch is like its original if nothing is left out of it.

    If the first part continues the current part, it does not begin with the pass, so its cut is left out.
    """
    begins, _, part = t.parts_begun[before.began.begun]
    cuts = t.cuts[before.began.cuts : before.ended.cuts]
    if part == t.part:
        cuts.remove(begins)
    t.cuts += [place(cut) for cut in cuts]
    for cut, following in pairwise(cuts):
        if place(following) - place(cut) == following - cut:
            t.alike[place(cut)] = t.alike.get(cut, cut)


def _tensor(t: Tape, form: _Form, storages: dict[int, Storage], number: _Shift, place: _Shift) -> Tensor:
    if form.number not in storages:
        event = NOWHERE if form.event == NOWHERE else place(form.event)
        storages[form.number] = Storage.already_written(t, number(form.number), form.nbytes, event)
    tensor = Tensor(storages[form.number], form.shape, form.numel, form.dtype)
    tensor.view, tensor.heads_first = form.view, form.heads_first
    return tensor
