"""The search of `fit`: the fastest variant of a config that fits its card."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from math import inf

from vramwise.errors import VramwiseError
from vramwise.opening.subject import Subject
from vramwise.types import RunSpec
from vramwise.variants.attempt import Attempt
from vramwise.variants.axes import ALLOW, AXES, Axis, Choices
from vramwise.variants.axes import opened as opened_axes
from vramwise.variants.effort import ANSWER, BESIDE, OPENED, SIMULATIONS_A_WORD, OutOfEffort
from vramwise.variants.lower_bounds import proof_bytes
from vramwise.variants.search.beyond import closest, considered, fallen, others
from vramwise.variants.search.book import Book
from vramwise.variants.search.combinations import Pick
from vramwise.variants.search.finding import Progress, Search
from vramwise.variants.search.result import Fit
from vramwise.verbs.drafts import Adjust, SubjectWorkshop, as_it_is, search_of
from vramwise.verbs.fitting.largest import largest_of
from vramwise.verbs.fitting.smallest_card import smallest_card


def fit_subject(
    subject: Subject,
    *,
    allow: Sequence[str] = (),
    keep: Sequence[str] = (),
    margin_bytes: int | None = None,
    limit_bytes: int | None = None,
    maximise: str | None = None,
    progress: Progress | None = None,
    adjust: Adjust = as_it_is,
    axes: tuple[Axis, ...] | None = None,
) -> Fit:
    """Find the fastest variant that fits.

    `allow`: words that permit changes which affect the training result. `keep`: keys that must not change.
    `margin_bytes`: memory that must stay free; default: the error that the prediction may have. `maximise`: the key
    whose largest value is wanted instead. `adjust` applies the caller's own decisions. `axes`: what may vary; default:
    what `allow` permits.
    """
    _refuse_mistakes(subject, allow, keep, limit_bytes)
    if maximise is not None:
        found = largest_of(
            subject,
            maximise,
            axes=opened_axes(allow),
            keep=keep,
            margin_bytes=margin_bytes,
            limit_bytes=limit_bytes,
            progress=progress,
        )
        return replace(found, smallest_card=smallest_card(subject))
    workshop = SubjectWorkshop(subject=subject, limit_bytes=limit_bytes, keep=keep, adjust=adjust)
    search = search_of(workshop, opened_axes(allow) if axes is None else axes, margin_bytes)
    search.progress = progress
    book = search.book
    original = book.judged_shown(book.space.start)
    if original.prediction is None:
        raise VramwiseError(original.fell)
    workshop.until = ANSWER
    best, nearest = _answer(search, workshop)
    workshop.until = BESIDE
    beside = () if best is None else tuple(book.judged(pick) for pick in others(search, best))
    total = considered(search)
    why_not = fallen(search, best, total)
    weights = proof_bytes(subject.run, subject.model, allow, workshop.room_bytes(subject.run))
    workshop.until = OPENED
    words = () if best is not None or axes is not None else tuple(_opened(workshop, allow, margin_bytes))
    return Fit(
        original=original,
        best=None if best is None else book.judged(best),
        alternatives=beside,
        closest=None if nearest is None else _shown(book, nearest),
        opened=words,
        fallen=why_not,
        smallest_card=smallest_card(subject),
        considered=total,
        simulated=book.simulated,
        ended_early=search.ended_early or (best is None and subject.effort.spent >= OPENED),
        weights_bytes=0 if best is not None else weights,
    )


def answer_of(
    subject: Subject,
    axes: tuple[Axis, ...],
    *,
    margin_bytes: int | None = None,
    slowest: float | None = None,
    or_closest: bool = True,
    progress: Progress | None = None,
    again: bool = True,
) -> Attempt | None:
    """Return only the answer of `fit_subject`: the fastest variant that fits, else the closest one.

    With `slowest`, returns None unless a variant fits whose step takes at most that many seconds. `or_closest`: whether
    a variant that does not fit is acceptable. `again`: if the effort ends early, search once more from the answer.
    """
    workshop = SubjectWorkshop(subject=subject)
    search = search_of(workshop, axes, margin_bytes)
    search.progress, search.slowest = progress, slowest
    if slowest is None:
        search.book.judged(search.book.space.start)  # the answer if the effort ends before there is another
    workshop.until = ANSWER
    sought = slowest is None and or_closest
    best, nearest = _answer(search, workshop, simulations=1) if sought else (search.best(), None)
    if best is None:
        return None if nearest is None else _shown(search.book, nearest)
    found = search.book.judged(best)
    if not again or not search.ended_early or found.document is None:
        return found
    start = subject.apart().with_document(found.document)
    further = answer_of(start, axes, margin_bytes=margin_bytes, progress=progress, again=False)
    fitting = [found] if further is None or not further.fits else [further, found]
    return min(fitting, key=lambda one: inf if one.speed is None else one.speed.step_seconds)


def _answer(
    search: Search, workshop: SubjectWorkshop, simulations: int | None = None
) -> tuple[Pick | None, Pick | None]:
    """Return the best variant and None, or None and the closest variant.

    If the search ended early and the closest variant fits, it is the best. `simulations`: how many are spent on the
    closest variant if it cannot be the answer.
    """
    best = search.best()
    if best is not None:
        return best, None
    workshop.until = max(workshop.until, BESIDE)
    nearest = closest(search) if simulations is None or search.ended_early else closest(search, simulations)
    return (nearest, None) if nearest is not None and search.book.judged(nearest).fits else (None, nearest)


def _shown(book: Book, pick: Pick) -> Attempt:
    """Return a variant with the prediction that other interfaces show, if there is effort left for it."""
    try:
        return book.judged_shown(pick)
    except OutOfEffort:
        return book.judged(pick)


def keeping_result(axes: Iterable[Axis]) -> tuple[Axis, ...]:
    """Return the axes without choices that change the training result."""

    def kept(choices: Choices) -> Choices:
        return lambda run: [change for change in choices(run) if change.effect != "changes"]

    return tuple(replace(axis, choices=kept(axis.choices)) for axis in axes)


def _opened(workshop: SubjectWorkshop, allow: Sequence[str], margin_bytes: int | None) -> Iterator[tuple[str, Attempt]]:
    """Yield what other words of --allow would give: each alone, or if none is enough, the fewest together."""

    def with_words(words: Sequence[str]) -> Attempt | None:
        search = search_of(workshop, opened_axes([*allow, *words]), margin_bytes)
        search.most = SIMULATIONS_A_WORD
        best = search.best()
        if best is None and search.ended_early:
            best, _ = _answer(search, workshop)
        return None if best is None else search.book.judged(best)

    closed = [word for word in ALLOW if word not in allow and opens(workshop.subject.run, word)]
    alone = [(word, found) for word in closed if (found := with_words([word])) is not None]
    if alone or len(closed) < 2:
        yield from alone
        return
    together = with_words(closed)
    closed = closed if together is None else [word for word in closed if _used(word, together)]
    for word in closed if together is not None else ():
        fewer = [other for other in closed if other != word]
        found = with_words(fewer)
        if found is not None:
            closed, together = fewer, found
    if together is not None:
        yield " ".join(closed), together


def _used(word: str, found: Attempt) -> bool:
    """Return whether a variant has a change that this word permits."""
    made = {change.id for change in found.changes}
    return any(kind.id in made for axis in AXES if axis.allow == word for kind in axis.kinds)


def opens(run: RunSpec, word: str) -> bool:
    """Return whether a word of --allow permits any change of the run."""
    return any(axis.choices(run) for axis in AXES if axis.allow == word)


def _refuse_mistakes(subject: Subject, allow: Sequence[str], keep: Sequence[str], limit_bytes: int | None) -> None:
    if subject.model is None:
        raise VramwiseError(subject.model_missing)
    if subject.target.gpu is None and limit_bytes is None:
        raise VramwiseError(
            "no GPU on this machine: use --gpu to name the card to fit, for example --gpu rtx-4090 or --gpu 24GB. "
            "`vramwise gpus` lists the cards"
        )
    for word in allow:
        if word not in ALLOW:
            close = get_close_matches(word.lower(), ALLOW, n=2)
            hint = f"did you mean {' or '.join(close)}?" if close else f"choose one of {', '.join(ALLOW)}"
            raise VramwiseError(f"unknown value for --allow: {word}; {hint}")
    for key in keep:
        unknown = subject.trainer.key_unknown(key, subject.target.stack)
        if unknown:
            raise VramwiseError(f"--keep {key}: {unknown}")
