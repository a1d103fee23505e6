"""The sentences of `fit`: its answer, a variant's figures, why others are none; the same in text and on the page."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from vramwise.actions import action
from vramwise.render.speed_text import seconds, speed_line, times
from vramwise.render.verdict_text import STOPPED, at_line, sentence, stopped, where
from vramwise.types import PLACES, GpuSpec
from vramwise.units import GIB, gib, readable
from vramwise.variants.search.result import Candidate, Fit
from vramwise.variants.verdict import TIGHT
from vramwise.verbs.fitting.report import FitReport

# Less than this is no difference in speed that anybody would notice, or that the figures could tell.
_SAME_SPEED = 0.015
# A margin is worth a word where no more than so many times as much stays free.
_MUCH = 4
_WHAT_A_STEP_SEES = ("sequence_len", "sample_packing", "effective_batch_size")


def kind(fit: Fit) -> str:
    """`fits`, `tight`, `may_fit`, `does_not_fit` or `stops`: as the verdict of a prediction, with the margin kept."""
    if fit.stops:
        return "stops"
    if fit.best is None:
        return "may_fit" if left_open(fit) else "does_not_fit"
    return "tight" if fit.best.tight else "fits"


def left_open(fit: Fit) -> bool:
    """Whether nothing is known to fit only because the run cannot be fully predicted."""
    prediction = fit.original.prediction
    return fit.best is None and prediction is not None and prediction.memory_fits is None


def answer(fit: Fit, asked: str | None = None) -> str:
    """The first line. `asked`: the key whose largest value was asked for."""
    best = fit.best
    if fit.stops:
        return f"{stopped(fit.stops)}: {fit.stops[0].message}; fix this first, then fit again"
    if best is None:
        return _nothing_fits(fit)
    spare = f"{readable(_free(best))} to spare{_where(best)}"
    tight = " (tight)" if best.tight else ""
    if asked is not None:
        return f"The largest {asked} that fits: {_value(best, asked)}, with {spare}{tight}"
    if not fit.changed:
        if best.speed is None:
            return f"Your file fits unchanged, with {spare}{tight}"
        return f"Your file is already the fastest that fits, with {spare}{tight}"
    words = "; ".join([*_repairs(fit), *([best.attempt.words] if best.attempt.changes else [])])
    return f"Fits with {spare}{tight}{_against(fit)}: {words}"


def _repairs(fit: Fit) -> list[str]:
    """What was fixed before the search, in the words of the fixes."""
    return [found.fix.title for found in fit.repairs if found.fix is not None]


def _against(fit: Fit) -> str:
    """How the answer compares with the file, where the file could run at all."""
    faster = None if fit.best is None else ratio(fit.original, fit.best)
    if fit.repairs:
        return f"; your file {STOPPED[fit.repairs[0].still_runs].lower()}"
    if not fit.original.fits:
        return "; your file does not fit"
    if faster is None:
        return ""
    if abs(faster - 1) < _SAME_SPEED:
        return ", as fast as your file"
    return f", about {times(faster)} as fast as your file"


def _nothing_fits(fit: Fit) -> str:
    closest = fit.closest or fit.original
    if left_open(fit) and fit.original.prediction is not None:
        less = (closest.reserved_bytes or 0) < (fit.original.reserved_bytes or 0)
        return f"{sentence(fit.original.prediction)}{f'; smaller: {closest.attempt.words}' if less else ''}"
    short = f"{readable(-_free(closest))} short"
    if closest.prediction is not None and closest.prediction.fits:
        short = f"{readable(-(closest.spare_bytes or 0))} short of the margin"
    said = f"Does not fit{_where(closest)}: {short} at the closest"
    if closest.attempt.changes:
        said += f" ({closest.attempt.words})"
    if not fit.opened:
        return said
    words, opened = fit.opened[0]
    return f"{said}; {allowing(words)} would ({opened.attempt.words})"


def allowing(words: str) -> str:
    """The options that open what one of `Fit.opened` is about: a word, or several that are needed together."""
    return action("allow several").join(action("allow").format(word) for word in words.split())


def reasons(report: FitReport) -> Iterator[str]:
    """What is printed below the answer: the figures of the answer, and of the file as it is."""
    fit = report.fit
    document = report.document
    yield from (f"{at_line(document, found)}{found.message}" for found in fit.stops[1:])
    for found in fit.repairs:
        where = "Your file: " if found.line is None else f"Line {document.label(found.line)} of your file: "
        yield f"{where}{found.message}"
    if fit.best is not None:
        yield figures(fit.best)
    if (fit.changed or fit.best is None) and fit.original.prediction is not None:
        said, why = figures(fit.original), against(fit.original)
        as_it_is = "Your file with its errors fixed" if fit.repairs else "Your original file"
        yield f"{as_it_is}{f' {why}' if why else ''}: {said[:1].lower()}{said[1:]}"
    shown = fit.best or fit.closest or fit.original
    if shown.prediction is not None and shown.prediction.bounds is not None:
        yield f"Not modelled: {shown.prediction.bounds.why}"
    if report.no_speed:
        card = card_of(fit)
        hint = f"; {action('list the cards')} to find faster variants" if card is not None and not card.known else ""
        yield (
            f"{report.no_speed[:1].upper()}{report.no_speed[1:]}, so variants are ranked by how little they "
            f"change{hint}"
        )
    if fit.ended_early:
        better = "none that fits was found" if fit.best is None else "a better one may exist"
        yield f"The search reached its limit before comparing every variant: {better}; {action('search less')}"
    yield from _roomier(fit)
    if shown.margin_bytes and _free(shown) < _MUCH * shown.margin_bytes:
        yield f"{readable(shown.margin_bytes)} kept free as a margin{_why_margin(shown)}"


def _roomier(fit: Fit) -> Iterator[str]:
    """A tight answer is not for everybody: the fastest that leaves more room, and how to ask for it."""
    roomy = next((one for one in fit.alternatives if one.fits and not one.tight), None)
    if fit.best is None or not fit.best.tight or roomy is None or roomy.prediction is None:
        return
    faster = ratio(fit.best, roomy)
    price = "" if faster is None else f", {times(faster)} the speed"
    margin = ceil(TIGHT * (roomy.prediction.capacity_bytes or 0) / GIB)
    said = f"{roomy.attempt.words} ({readable(_free(roomy))} to spare{price})"
    yield f"With more room: {said}; {action('keep room').format(margin)}"


def figures(one: Candidate) -> str:
    """What a variant reserves and how fast it is."""
    prediction = one.prediction
    if prediction is None:
        return "never simulated"
    room = prediction.capacity_bytes
    of = "" if room is None else f" of {gib(room)}"
    said = f"Reserves {reserved(one)}{of}"
    if one.speed is None:
        return said
    line = speed_line(one.speed, error=False)
    return f"{said}; {line[:1].lower()}{line[1:]}"


def reserved(one: Candidate) -> str:
    """What a variant reserves; between which figures, where it is not fully predicted and the most is known."""
    least, prediction = one.reserved_bytes or 0, one.prediction
    if prediction is None or prediction.most_bytes <= least:
        return gib(least)
    return f"{gib(least).removesuffix(' GiB')} to {gib(prediction.most_bytes)}"


def _why_margin(one: Candidate) -> str:
    prediction = one.prediction
    if prediction is None or not prediction.expected_error.took_more:
        return ""
    return f": similar measured runs took up to {100 * prediction.expected_error.took_more:.1f} % more than predicted"


def against(one: Candidate) -> str:
    """Why a variant is no answer, in few words; "" where it fits."""
    prediction = one.prediction
    if not one.fell or prediction is None:
        return ""
    if prediction.fits is None:
        return "cannot be fully predicted"
    if prediction.fits is False:
        return "does not fit"
    if prediction.report.retries or prediction.fits_by_emptying:
        return "fits only by releasing cached memory"
    return "fits, but without the margin"


def fallen(fit: Fit) -> str:
    """Why the others are no answer, the most frequent first; "" where none fell."""
    ranked = sorted(fit.fallen.items(), key=lambda item: (-item[1], item[0]))
    return "; ".join(f"{count:,} {why}" for why, count in ranked)


def smallest_card(fit: Fit) -> str:
    """The smallest card that takes the file as it is; "" where there is none to name."""
    card = fit.smallest_card
    if card is None and fit.original.prediction is not None and fit.original.prediction.bounds is not None:
        return "The smallest card for your original file is not known: the run cannot be fully predicted"
    if card is None:
        return "No known card is certain to fit your original file"
    return f"The smallest card for your original file: {card.name} ({gib(card.memory_bytes)})"


def opened_words(words: str, one: Candidate, original: Candidate) -> str:
    """What one word of --allow, or several together, would give."""
    said = f"{allowing(words)}: {one.attempt.words}"
    if one.prediction is None:
        return said
    said += f"; fits with {readable(_free(one))} to spare" + (" (tight)" if one.tight else "")
    faster = ratio(original, one)
    return said if faster is None else f"{said}, {times(faster)} the speed"


def nothing_opened() -> str:
    """What is said where no change that may be allowed makes it fit."""
    return f"{action('nothing to allow')}: it takes a larger card, or {action('several cards')}"


def ratio(original: Candidate, one: Candidate) -> float | None:
    """How many times as fast as the original; None where either is not known.

    By the step, which trains on the same samples; where rows got shorter or hold more of them, by the token.
    """
    if not (original.speed and one.speed and original.run and one.run):
        return None
    if any(original.run.value(name) != one.run.value(name) for name in _WHAT_A_STEP_SEES):
        return one.speed.tokens_per_second / original.speed.tokens_per_second
    return original.speed.step_seconds / one.speed.step_seconds


def step(one: Candidate) -> str:
    """Seconds of a step, for a table."""
    return "" if one.speed is None else seconds(one.speed.step_seconds)


def card_of(fit: Fit) -> GpuSpec | None:
    """The card that was asked about."""
    run = fit.original.run
    return None if run is None else run.target.gpu


def _free(one: Candidate) -> int:
    """What stays free, as `predict` says it: the margin is a part of it."""
    return (one.spare_bytes or 0) + one.margin_bytes


def _where(one: Candidate) -> str:
    prediction = one.prediction
    return "" if prediction is None else where(prediction)


def _value(best: Candidate, key: str) -> str:
    if key == "model" and best.run is not None:
        return str(best.run.base_model)
    document = best.attempt.document
    if document is not None and key in document.values:
        return str(document.values[key])
    return "as it is" if best.run is None or key not in PLACES else str(best.run.value(key))
