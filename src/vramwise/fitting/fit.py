"""`fit`: the fastest variant of a config that fits its card."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import combinations

from vramwise.attempting import Adjust, as_it_is
from vramwise.errors import VramwiseError
from vramwise.facts.gpus import all_gpus
from vramwise.fitting.workshop import SubjectWorkshop
from vramwise.subject import Subject
from vramwise.types import Change, GpuSpec
from vramwise.variants.axes import ALLOW, AXES
from vramwise.variants.search.book import Book
from vramwise.variants.search.finding import MOST, Progress, Search
from vramwise.variants.search.result import Candidate, Fit
from vramwise.variants.search.space import Space, space_of

# Simulations that each further word of --allow may take where nothing fits without it.
_MOST_EACH = 12


def fit(
    subject: Subject,
    *,
    allow: Sequence[str] = (),
    keep: Sequence[str] = (),
    margin_bytes: int | None = None,
    limit_bytes: int | None = None,
    progress: Progress | None = None,
    adjust: Adjust = as_it_is,
    most: int = MOST,
) -> Fit:
    """The fastest variant that fits. `allow`: words that open more than keeps the training result; `keep`: keys that
    stay. `margin_bytes` must stay free, else what the prediction itself may be off by. `most`: simulations."""
    _refuse_mistakes(subject, allow, keep, limit_bytes)
    workshop = SubjectWorkshop(subject=subject, limit_bytes=limit_bytes, keep=keep, adjust=adjust)
    space = _space(workshop, allow)
    search = Search(book=Book(space=space, workshop=workshop, margin_bytes=margin_bytes), most=most, progress=progress)
    original = search.book.candidate_anyway(space.start)
    if original.prediction is None:
        raise VramwiseError(original.fell)
    best = search.best()
    closest = None if best is not None else search.closest()
    others = [] if best is None else search.others(best)
    opened = _opened(workshop, allow, margin_bytes) if best is None else ()
    book = search.book
    return Fit(
        original=original,
        best=None if best is None else book.candidate(best),
        alternatives=tuple(book.candidate(pick) for pick in others),
        closest=None if closest is None else book.candidate(closest),
        opened=tuple(opened),
        fallen=search.fallen(best),
        smallest_card=smallest_card(original),
        considered=space.size,
        simulated=book.simulated,
    )


def _space(workshop: SubjectWorkshop, allow: Sequence[str]) -> Space:
    """What may be chosen: each choice can be written by itself, and does something."""
    run = workshop.subject.run

    def offers(change: Change) -> bool:
        return not workshop.made([change]).refused

    return space_of(run, AXES, allow, offers)


def _opened(
    workshop: SubjectWorkshop, allow: Sequence[str], margin_bytes: int | None
) -> Iterator[tuple[str, Candidate]]:
    """What other words would give: each alone; in pairs where none alone is enough; all where no pair is."""
    closed = [word for word in ALLOW if word not in allow]
    for count in dict.fromkeys([1, 2, len(closed)]):
        found = False
        for words in combinations(closed, count):
            space = _space(workshop, [*allow, *words])
            search = Search(book=Book(space=space, workshop=workshop, margin_bytes=margin_bytes), most=_MOST_EACH)
            best = search.best()
            if best is not None:
                found = True
                yield " ".join(words), search.book.candidate(best)
        if found:
            return


def smallest_card(candidate: Candidate) -> GpuSpec | None:
    """The smallest card of the catalogue that has room for a run with its margin, of those that do what this one does.

    Cards of another maker, and of an older kind than the one at hand, may run it otherwise.
    """
    prediction = candidate.prediction
    gpu = None if prediction is None else prediction.gpu
    if prediction is None or gpu is None:
        return None
    needed = prediction.needs.highest_reserved_bytes + prediction.needs.outside_bytes + candidate.margin_bytes
    enough = [card for card in all_gpus() if card.memory_bytes >= needed and _alike(card, gpu)]
    return min(enough, key=lambda card: card.memory_bytes, default=None)


def _alike(card: GpuSpec, gpu: GpuSpec) -> bool:
    return card.vendor == gpu.vendor and (card.bf16 or not gpu.bf16) and (card.fp8 or not gpu.fp8 or gpu.known is False)


def _refuse_mistakes(subject: Subject, allow: Sequence[str], keep: Sequence[str], limit_bytes: int | None) -> None:
    if subject.model is None:
        raise VramwiseError(subject.model_missing)
    if subject.target.gpu is None and limit_bytes is None:
        raise VramwiseError(
            "no card is named, and this machine has none: say with --gpu what it must fit, such as --gpu rtx-4090 or "
            "--gpu 24GB; `vramwise gpus` lists the cards"
        )
    for word in allow:
        if word not in ALLOW:
            close = get_close_matches(word.lower(), ALLOW, n=2)
            hint = f"did you mean {' or '.join(close)}?" if close else f"the words are {', '.join(ALLOW)}"
            raise VramwiseError(f"--allow {word}: there is no such word: {hint}")
    for key in keep:
        unknown = subject.trainer.key_unknown(key, subject.target.stack)
        if unknown:
            raise VramwiseError(f"--keep {key}: {unknown}")
