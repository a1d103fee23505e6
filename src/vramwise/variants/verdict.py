"""Whether a run fits, in one word and its figures; the one place where that is decided for every door."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vramwise.variants.prediction import Prediction

Kind = Literal["fits", "tight", "may_fit", "does_not_fit", "not_known", "no_card"]
# Less than this share of the card to spare is within what drivers, other processes and the error can take.
_MARGIN = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`short_bytes`: by how much it does not fit; `spare_bytes`: what stays free. One of them is 0.

    `rows_up_to`: it does not fit with rows as wide as they may get, but with rows of at most so many tokens.
    """

    kind: Kind
    short_bytes: int = 0
    spare_bytes: int = 0
    rows_up_to: int | None = None


def verdict_of(prediction: Prediction, rows_up_to: int | None = None) -> Verdict:
    """The verdict on a prediction. `rows_up_to`: see Verdict; whoever can predict again finds it."""
    capacity = prediction.capacity_bytes
    if capacity is None:
        return Verdict(kind="no_card")
    needed = prediction.needs.highest_reserved_bytes
    short, spare = max(0, needed - capacity), max(0, capacity - needed)
    if prediction.fits is None:
        unknown = prediction.bounds is not None and prediction.bounds.upper_bytes is None
        return Verdict(kind="not_known" if unknown else "may_fit", short_bytes=short, spare_bytes=spare)
    if prediction.fits is False:
        kind: Kind = "does_not_fit" if rows_up_to is None else "may_fit"
        return Verdict(kind=kind, short_bytes=short, rows_up_to=rows_up_to)
    tight = prediction.report.retries > 0 or spare < _MARGIN * capacity
    return Verdict(kind="tight" if tight else "fits", short_bytes=short, spare_bytes=spare)
