"""The sentences of `fit`, shared by text and page: the answer, a variant's figures, why others were rejected."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from vramwise.render.doubt_text import doubt_lines
from vramwise.render.speed_text import seconds, speed_line, times
from vramwise.render.verdict_text import STOPPED, at_line, sentence, shortage, stopped, where
from vramwise.types import PLACES, GpuSpec
from vramwise.types.actions import action
from vramwise.units import GIB, gib, readable
from vramwise.variants.attempt import Attempt
from vramwise.variants.search.result import Fit
from vramwise.variants.verdict import NAMES, TIGHT
from vramwise.variants.versions import versions_line
from vramwise.verbs.fit import FitReport

# Smaller differences in speed are neither noticeable nor significant.
_SAME_SPEED = 0.015
# The margin is mentioned if less than this multiple of it stays free.
_MUCH = 4
_WHAT_A_STEP_SEES = ("sequence_len", "sample_packing", "effective_batch_size")


def kind(fit: Fit) -> str:
    """Return `fits`, `tight`, `may_fit`, `does_not_fit` or `stops`: the verdict of a prediction, with the margin."""
    if fit.stops:
        return "stops"
    if fit.best is None:
        return "may_fit" if left_open(fit) else "does_not_fit"
    return "tight" if fit.best.tight else "fits"


def left_open(fit: Fit) -> bool:
    """Return whether nothing is known to fit only because the run cannot be fully predicted."""
    prediction = fit.original.prediction
    return fit.best is None and prediction is not None and prediction.memory_fits is None


def answer(fit: Fit, asked: str | None = None) -> str:
    """Return the first line. `asked`: the key whose largest value is wanted."""
    return ": ".join(answer_parts(fit, asked))


def answer_parts(fit: Fit, asked: str | None = None) -> tuple[str, ...]:
    """Return the first line as its main clause, which is emphasised, and what follows a colon."""
    best = fit.best
    if fit.stops:
        return stopped(fit.stops), f"{fit.stops[0].message}; fix this first, then fit again"
    if best is None:
        return _nothing_fits(fit)
    spare = f"{readable(_free(best))} to spare{_where(best)}"
    tight = " (tight)" if best.tight else ""
    if asked is not None:
        return f"The largest {asked} that fits", f"{_value(best, asked)}, with {spare}{tight}"
    if not fit.changed:
        if best.speed is None:
            return (f"Your file fits unchanged, with {spare}{tight}",)
        return (f"Your file is already the fastest that fits, with {spare}{tight}",)
    words = "; ".join([*_repairs(fit), *([best.words] if best.changes else [])])
    return f"Fits with {spare}{tight}{_against(fit)}", words


def _repairs(fit: Fit) -> list[str]:
    """Return the titles of the fixes made before the search."""
    return [found.fix.title for found in fit.repairs if found.fix is not None]


def _against(fit: Fit) -> str:
    """Compare the answer with the original file, if that can run at all."""
    faster = None if fit.best is None else ratio(fit.original, fit.best)
    if fit.repairs:
        return f"; your file {STOPPED[fit.repairs[0].still_runs].lower()}"
    if why := against(fit, fit.original):
        return f"; your file {why}"
    if faster is None:
        return ""
    if abs(faster - 1) < _SAME_SPEED:
        return ", as fast as your file"
    return f", about {times(faster)} as fast as your file"


def _nothing_fits(fit: Fit) -> tuple[str, ...]:
    closest = fit.closest or fit.original
    if left_open(fit) and fit.original.prediction is not None:
        less = (closest.reserved_bytes or 0) < (fit.original.reserved_bytes or 0)
        return (f"{sentence(fit.original.prediction)}{f'; smaller: {closest.words}' if less else ''}",)
    short = f"{readable(-(closest.spare_bytes or 0))} short of the margin"
    if closest.prediction is not None and not closest.prediction.fits:
        short = shortage(closest.prediction, -_free(closest))
    clause, why = f"Found nothing that fits{_where(closest)} in {fit.tries:,} tries", f"{short} at the closest"
    if fit.weights_bytes:
        clause = f"{NAMES['does_not_fit']}{_where(closest)}"
        why = f"its weights alone need at least {gib(fit.weights_bytes)}, {short}"
    if closest.changes:
        why += f" ({closest.words})"
    if fit.opened:
        words, opened = fit.opened[0]
        why += f"; {allowing(words)} would ({opened.words})"
    return clause, why


def allowing(words: str) -> str:
    """Return the --allow options for an entry of `Fit.opened`: one word, or several that are needed together."""
    return action("allow several").join(action("allow").format(word) for word in words.split())


def reasons(report: FitReport) -> Iterator[str]:
    """Yield the lines below the answer: its figures, and those of the original file."""
    fit = report.fit
    document = report.document
    if fit.original.run is not None:
        yield from filter(None, [versions_line(fit.original.run)])
    yield from (f"{at_line(document, found)}{found.message}" for found in fit.stops[1:])
    for found in fit.repairs:
        where = "Your file: " if found.line is None else f"Line {document.label(found.line)} of your file: "
        yield f"{where}{found.message}"
    shown = fit.best or fit.closest or fit.original
    if shown.prediction is not None:
        yield from doubt_lines(shown.prediction, shown.prediction.verdict())
    if fit.best is not None:
        yield figures(fit.best, error=True)
    if (fit.changed or fit.best is None) and fit.original.prediction is not None:
        said, why = figures(fit.original), against(fit, fit.original)
        as_it_is = "Your file with its errors fixed" if fit.repairs else "Your original file"
        rows = f"; it fits if no row exceeds about {fit.rows_up_to} tokens" if fit.rows_up_to is not None else ""
        yield f"{as_it_is}{f' {why}' if why else ''}: {said[:1].lower()}{said[1:]}{rows}"
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
    """Yield, for a tight answer, the fastest variant with more room and how to get it."""
    roomy = next((one for one in fit.alternatives if one.fits and not one.tight), None)
    if fit.best is None or not fit.best.tight or roomy is None or roomy.prediction is None:
        return
    faster = ratio(fit.best, roomy)
    price = "" if faster is None else f", {times(faster)} the speed"
    margin = ceil(TIGHT * (roomy.prediction.capacity_bytes or 0) / GIB)
    said = f"{roomy.words} ({readable(_free(roomy))} to spare{price})"
    yield f"With more room: {said}; {action('keep room').format(margin)}"


def figures(one: Attempt, *, error: bool = False) -> str:
    """Return what a variant reserves and how fast it is; `error`: and how far off speeds were."""
    prediction = one.prediction
    if prediction is None:
        return "never simulated"
    room = prediction.capacity_bytes
    of = "" if room is None else f" of {gib(room)}"
    said = f"Reserves {reserved(one)}{of}"
    if one.speed is None:
        return said
    line = speed_line(one.speed, error=error)
    return f"{said}; {line[:1].lower()}{line[1:]}"


def reserved(one: Attempt) -> str:
    """Return what a variant reserves, as a range if it is not fully predicted and has an upper bound."""
    least, prediction = one.reserved_bytes or 0, one.prediction
    if prediction is None or prediction.most_bytes <= least:
        return gib(least)
    return f"{gib(least).removesuffix(' GiB')} to {gib(prediction.most_bytes)}"


def _why_margin(one: Attempt) -> str:
    prediction = one.prediction
    return "" if prediction is None or not prediction.margin.more else ", for what is not known of the run"


def against(fit: Fit, one: Attempt) -> str:
    """Return why a variant is rejected, in a few words; "" if it fits."""
    prediction = one.prediction
    if not one.fell or prediction is None:
        return ""
    if prediction.fits is None and prediction.bounds is not None:
        return "cannot be fully predicted"
    if prediction.fits is False:
        return NAMES["may_fit" if one is fit.original and fit.rows_up_to is not None else "does_not_fit"].lower()
    if prediction.report.retries or prediction.fits_by_emptying:
        return "fits only by releasing cached memory"
    return "fits, but without the margin" if (one.spare_bytes or 0) + one.margin_bytes >= 0 else "may not fit"


def fallen(fit: Fit) -> str:
    """Return why the other variants were rejected, the most frequent reason first; "" if there are none."""
    ranked = sorted(fit.fallen.items(), key=lambda item: (-item[1], item[0]))
    return "; ".join(f"{count:,} {why}" for why, count in ranked)


def smallest_card(fit: Fit) -> str:
    """Return a sentence about the smallest card for the original file."""
    card = fit.smallest_card
    if card is None and fit.original.prediction is not None and fit.original.prediction.bounds is not None:
        return "The smallest card for your original file is not known: the run cannot be fully predicted"
    if card is None:
        return "No known card is certain to fit your original file"
    return f"The smallest card for your original file: {card.name} ({gib(card.memory_bytes)})"


def opened_words(words: str, one: Attempt, original: Attempt) -> str:
    """Describe what one word of --allow, or several together, would give."""
    said = f"{allowing(words)}: {one.words}"
    if one.prediction is None:
        return said
    said += f"; fits with {readable(_free(one))} to spare" + (" (tight)" if one.tight else "")
    faster = ratio(original, one)
    return said if faster is None else f"{said}, {times(faster)} the speed"


def nothing_opened() -> str:
    """Return the sentence for the case that no permitted change makes it fit."""
    return f"{action('nothing to allow')}. Not tried: a larger card, {action('several cards')}, or a smaller model"


def ratio(original: Attempt, one: Attempt) -> float | None:
    """Return how many times as fast as the original a variant is; None if either speed is unknown.

    Steps are compared if they train on the same samples, otherwise tokens per second.
    """
    if not (original.speed and one.speed and original.run and one.run):
        return None
    if any(original.run.value(name) != one.run.value(name) for name in _WHAT_A_STEP_SEES):
        return one.speed.tokens_per_second / original.speed.tokens_per_second
    return original.speed.step_seconds / one.speed.step_seconds


def step(one: Attempt) -> str:
    """Return the seconds of a step, for a table."""
    return "" if one.speed is None else seconds(one.speed.step_seconds)


def card_of(fit: Fit) -> GpuSpec | None:
    """Return the target card, or None."""
    run = fit.original.run
    return None if run is None else run.target.gpu


def _free(one: Attempt) -> int:
    """Return what stays free, as `predict` reports it: including the margin."""
    return (one.spare_bytes or 0) + one.margin_bytes


def _where(one: Attempt) -> str:
    prediction = one.prediction
    return "" if prediction is None else where(prediction)


def _value(best: Attempt, key: str) -> str:
    if key == "model" and best.run is not None:
        return str(best.run.base_model)
    document = best.document
    if document is not None and key in document.values:
        return str(document.values[key])
    return "as it is" if best.run is None or key not in PLACES else str(best.run.value(key))
