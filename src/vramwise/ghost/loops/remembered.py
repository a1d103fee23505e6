"""A stretch of the tape as it is remembered: with everything counted from its start, to be written once more."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from vramwise.ghost.copies import COPY, Row
from vramwise.ghost.tape import Storage, Tape, Tensor
from vramwise.timeline import Action, Event

_ALLOC, _FREE, _PHASE = int(Action.ALLOC), int(Action.FREE), int(Action.PHASE)

# In place of numbers that count from the stretch's first tensor: the loss of the one before, and none at all.
LAST_LOSS, NONE = -1, -2


def kept_by_libraries(t: Tape, first: int) -> list[int]:
    """The numbers of what was made since and stays until the run ends."""
    return sorted(
        [storage.number for held in (t.workspaces, t.once) for storage in held.values() if storage.number >= first]
    )


def moved(number: int, first: int, kept: list[int]) -> int:
    """A number counted from the first, as if what libraries keep had been there before."""
    return number - first - bisect_left(kept, number)


def relative(t: Tape, start: int, first: int, kept: list[int], last: int = -1, phases: int = 0) -> list[Row]:
    """The events since, with everything counted from the start, without the requests for what libraries keep.

    `last`: the number of the last loss, `phases`: how many there were.
    """
    # nearly all are of tensors made after whatever is kept: those are worth a line of their own
    after = kept[-1] if kept else first - 1
    low = first + len(kept)
    return [
        (action, number - low, size, stream, tag)
        if number > after and action <= _FREE
        else _row(t, (action, number, size, stream, tag), first, kept, last, phases)
        for action, number, size, stream, tag in t.events[start:]
        if action or number > after or number not in kept
    ]


def moved_cuts(cuts: Sequence[int], start: int, written: Sequence[Event], kept: list[int]) -> list[int]:
    """Positions counted from the start, as if what libraries keep had been there before."""
    gone = []
    if kept:
        made = set(kept)
        gone = [place for place, event in enumerate(written) if event[1] in made and event[0] == _ALLOC]
    return [position - start - bisect_left(gone, position - start) for position in cuts]


def _row(t: Tape, event: Row, first: int, kept: list[int], last: int, phases: int) -> Row:
    """An event with everything counted from the start; what is neither from here nor the last loss has no number."""
    action, number, size, stream, tag = event
    if action == COPY:
        own = moved(number, first, kept)
        outer, tags = t.copies.variants[tag]
        if kept:
            now = tuple([moved(number + offset, first, kept) - own for offset in outer])
            if now != outer:
                tag = t.copies.vary(now, tags)
        return (action, own, size, stream, tag)
    if action > _FREE:
        return (action, NONE, size, stream, tag - phases if action == _PHASE else tag)
    if number >= first:
        return (action, moved(number, first, kept), size, stream, tag)
    return (action, LAST_LOSS if number == last else NONE, size, stream, tag)


def made_and_freed(t: Tape, events: Sequence[Row]) -> tuple[set[int], set[int]]:
    """What is made in a stretch and what is freed in it; of copies, what they leave and what they free from before."""
    made = {row[1] for row in events if row[0] == _ALLOC}
    freed = {row[1] for row in events if row[0] == _FREE}
    for row in events:
        if row[0] == COPY:
            made.update(t.copies.made(row))
            freed.update(t.copies.freed(row))
    return made, freed


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
