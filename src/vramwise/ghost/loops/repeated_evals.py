"""Evaluation batches that were seen before: one of the same shape asks for the same memory.

What libraries make at first use and keep is left out of what is remembered. Only the result outlives a batch: where
anything else does, or anything from before is freed, it is run each time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

from vramwise.ghost.copies import COPY, Row
from vramwise.ghost.loops.remembered import (
    already_written,
    kept_by_libraries,
    like,
    made_and_freed,
    moved,
    moved_cuts,
    relative,
)
from vramwise.ghost.tape import Tape, Tensor
from vramwise.timeline import Action, Event

_make = tuple.__new__
_FREE = int(Action.FREE)


class _Batch(NamedTuple):
    """What is remembered: events and cuts counted from the start, tensors, the mark left behind, and the result."""

    events: list[Row]
    cuts: list[int]
    tensors: int
    tag: int
    form: Tensor
    nbytes: int
    number: int


class EvalBatches:
    """Remembers one evaluation batch of each shape."""

    def __init__(self, t: Tape) -> None:
        self._t = t
        self._known: dict[Hashable, _Batch] = {}
        self._written: dict[Hashable, int] = {}  # where one of each shape stands that is as it is remembered

    def result(self, shape: Hashable, run: Callable[[], Tensor]) -> Tensor:
        """Run a batch of this shape, or write down once more what an earlier one did."""
        known = self._known.get(shape)
        if known is not None:
            return self._again(shape, known)
        t = self._t
        start, first, cuts = len(t.events), t.count, len(t.cuts)
        result = run()
        self._remember(shape, result, start, first, cuts)
        return result

    def _remember(self, shape: Hashable, result: Tensor, start: int, first: int, cuts: int) -> None:
        t = self._t
        written = t.events[start:]
        if result.storage is None or result.storage.number < first or any(_FREE < event[0] < COPY for event in written):
            return
        kept = kept_by_libraries(t, first)
        events = relative(t, start, first, kept)
        made, freed = made_and_freed(t, events)
        number = moved(result.storage.number, first, kept)
        if made - freed != {number} or not freed <= made:
            return
        if not kept:
            self._written[shape] = start
        self._known[shape] = _Batch(
            events=events,
            cuts=moved_cuts(t.cuts[cuts:], start, written, kept),
            tensors=t.count - first - len(kept),
            tag=t.tag,
            form=like(result, None),
            nbytes=result.storage.nbytes,
            number=number,
        )

    def _again(self, shape: Hashable, known: _Batch) -> Tensor:
        t = self._t
        start, base = len(t.events), t.count
        t.events += [
            _make(Event, (action, number + base, size, stream, tag))
            for action, number, size, stream, tag in known.events
        ]
        t.copy_cuts(known.cuts, start, self._written.get(shape))
        self._written.setdefault(shape, start)
        t.count += known.tensors
        t.tag = known.tag
        return like(known.form, already_written(t, known.number + base, known.nbytes, start))
