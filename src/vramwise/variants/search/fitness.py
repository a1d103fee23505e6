"""Decides whether a variant is an answer: it fits with its margin and without retrying allocations."""

from __future__ import annotations

from vramwise.variants.attempt import Attempt
from vramwise.variants.prediction import Prediction
from vramwise.variants.search.result import Candidate
from vramwise.variants.speed import Speed

TOO_LARGE = "need more memory than the card has"
NO_MARGIN = "fit, but by less than the prediction's error"
RETRIES = "fit only by releasing cached memory and retrying"
OF_MEMORY = frozenset({TOO_LARGE, NO_MARGIN, RETRIES})
OPEN = "cannot be fully predicted"


def margin_of(prediction: Prediction, asked_bytes: int | None) -> int:
    """Return the memory to keep free: as requested, else the margin of the verdict."""
    if asked_bytes is not None:
        return asked_bytes
    return int(prediction.most_bytes * prediction.margin.more)


def weighed(attempt: Attempt, speed: Speed | None, asked_margin_bytes: int | None) -> Candidate:
    """Return an attempt with its prediction as a candidate."""
    prediction = attempt.prediction
    if prediction is None:
        return Candidate(attempt=attempt, speed=speed, fell=attempt.refused or OPEN)
    margin = margin_of(prediction, asked_margin_bytes)
    capacity = prediction.capacity_bytes or 0
    spare = capacity - prediction.judged_bytes - margin
    return Candidate(
        attempt=attempt, speed=speed, spare_bytes=spare, margin_bytes=margin, fell=_fell(prediction, spare, margin)
    )


def _fell(prediction: Prediction, spare: int, margin: int) -> str:
    if prediction.memory_fits is None and prediction.bounds is not None:
        return OPEN
    simulated = prediction.report is not prediction.needs
    if prediction.report.out_of_memory is not None or (spare + margin < 0 and not simulated):
        return TOO_LARGE
    if prediction.report.retries > 0 or prediction.fits_by_emptying:
        return RETRIES
    return NO_MARGIN if spare < 0 else ""
