"""The result of a search: the answer, alternatives, why others were rejected, and what --allow would add.

A variant is an answer if it fits with its margin and without retrying allocations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from vramwise.types import Finding, GpuSpec
from vramwise.variants.attempt import Attempt
from vramwise.variants.prediction import Prediction
from vramwise.variants.speed import Speed

# Why a variant is no answer, if nothing is known of it.
UNTRIED = "were not tried"
TOO_LARGE = "need more memory than the card has"
NO_MARGIN = "fit, but by less than the prediction's error"
RETRIES = "fit only by releasing cached memory and retrying"
OF_MEMORY = frozenset({TOO_LARGE, NO_MARGIN, RETRIES})
OPEN = "cannot be fully predicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The fastest variant of a config that fits its card.

    `best`: None if nothing fits; the original if nothing is faster. `alternatives`: others that fit on the frontier
    between memory and speed, the fastest first. `closest`: if nothing fits, the variant that needs least. `opened`:
    what each word of --allow would give if nothing fits without it. `fallen`: why the others were rejected, with their
    numbers. `smallest_card`: for the original. `ended_early`: the search reached its limit before the answer was
    certain. `repairs`: errors that were fixed before the search, so that `original` is the file with those fixes.
    `stops`: errors that remain and keep every variant from starting. `weights_bytes`: what the weights alone need, if
    that is more than the card has: the proof that nothing permitted fits. 0: there is none.
    `rows_up_to`: see Verdict; of the original.
    """

    original: Attempt
    best: Attempt | None
    alternatives: tuple[Attempt, ...] = ()
    closest: Attempt | None = None
    opened: tuple[tuple[str, Attempt], ...] = ()
    fallen: Mapping[str, int] = field(default_factory=dict)
    smallest_card: GpuSpec | None = None
    considered: int = 0
    simulated: int = 0
    ended_early: bool = False
    repairs: tuple[Finding, ...] = ()
    stops: tuple[Finding, ...] = ()
    weights_bytes: int = 0
    rows_up_to: int | None = None

    @property
    def tries(self) -> int:
        """The number of variants that were simulated or ruled out."""
        return self.considered - self.fallen.get(UNTRIED, 0)

    @property
    def speedup(self) -> float | None:
        """How many times as fast as the original the answer is; None if unknown."""
        if self.best is None or not self.best.seconds or not self.original.seconds:
            return None
        return self.original.seconds / self.best.seconds

    @property
    def changed(self) -> bool:
        """Whether the answer differs from the file."""
        return self.best is not None and bool(self.best.changes or self.repairs)


def margin_of(prediction: Prediction, asked_bytes: int | None) -> int:
    """Return the memory to keep free: as requested, else the margin of the verdict."""
    if asked_bytes is not None:
        return asked_bytes
    return int(prediction.most_bytes * prediction.margin.more)


def weighed(attempt: Attempt, speed: Speed | None, asked_margin_bytes: int | None) -> Attempt:
    """Return a predicted attempt with its speed, its margin and, if it does not fit with that, the reason."""
    prediction = attempt.prediction
    if prediction is None:
        return replace(attempt, speed=speed, fell=attempt.refused or OPEN)
    margin = margin_of(prediction, asked_margin_bytes)
    spare = (prediction.capacity_bytes or 0) - prediction.judged_bytes - margin
    return replace(attempt, speed=speed, spare_bytes=spare, margin_bytes=margin, fell=_fell(prediction, spare, margin))


def _fell(prediction: Prediction, spare: int, margin: int) -> str:
    if prediction.memory_fits is None and prediction.bounds is not None:
        return OPEN
    simulated = prediction.report is not prediction.needs
    if prediction.report.out_of_memory is not None or (spare + margin < 0 and not simulated):
        return TOO_LARGE
    if prediction.report.retries > 0 or prediction.fits_by_emptying:
        return RETRIES
    return NO_MARGIN if spare < 0 else ""
