"""Whether a run fits, in one word and its figures; the one place where that is decided for every door."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from vramwise.variants.prediction import Prediction

Kind = Literal["fits", "tight", "may_fit", "does_not_fit", "stops", "not_known", "no_card"]
# Less than this share of the card to spare is within what drivers, other processes and the error can take.
TIGHT = 0.05
# Errors below this share are no reason to doubt a verdict.
_WORTH_SAYING = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a run fits. The kind `stops`: it does not start; `memory` then says whether its memory would fit.

    `short_bytes`: by how much it does not fit; `spare_bytes`: what stays free. One of them is 0.
    `rows_up_to`: it does not fit with rows as wide as they may get, but with rows of at most so many tokens.
    `within_error`: measured runs like it were off by so much that this one could come out the other way.
    """

    kind: Kind
    memory: Kind
    short_bytes: int = 0
    spare_bytes: int = 0
    rows_up_to: int | None = None
    within_error: bool = False


def verdict_of(prediction: Prediction, rows_up_to: int | None = None) -> Verdict:
    """The verdict on a prediction. `rows_up_to`: see Verdict; whoever can predict again finds it."""
    memory = _memory(prediction, may_be_shorter=rows_up_to is not None)
    kind: Kind = "stops" if prediction.stops else memory
    capacity = prediction.capacity_bytes
    if capacity is None:
        return Verdict(kind=kind, memory=memory)
    needed = prediction.judged_bytes
    return Verdict(
        kind=kind,
        memory=memory,
        short_bytes=max(0, needed - capacity),
        spare_bytes=max(0, capacity - needed),
        rows_up_to=rows_up_to,
        within_error=_within_error(prediction, capacity - needed),
    )


def _memory(prediction: Prediction, *, may_be_shorter: bool) -> Kind:
    if prediction.capacity_bytes is None:
        return "no_card"
    if prediction.memory_fits is None:
        unknown = prediction.bounds is not None and prediction.bounds.upper_bytes is None
        return "not_known" if unknown else "may_fit"
    if prediction.memory_fits is False:
        return "may_fit" if may_be_shorter else "does_not_fit"
    return "tight" if is_tight(prediction) else "fits"


def is_tight(prediction: Prediction) -> bool:
    """Whether a run that fits does so with little to spare, or by trying allocations again."""
    capacity = prediction.capacity_bytes or 0
    spare = capacity - prediction.most_bytes
    return prediction.report.retries > 0 or spare < TIGHT * capacity


def _within_error(prediction: Prediction, spare: int) -> bool:
    if prediction.memory_fits is None:
        return False
    error, needed = prediction.expected_error, prediction.needs.highest_reserved_bytes
    if prediction.memory_fits:
        return error.took_more > _WORTH_SAYING and 0 <= spare < needed * error.took_more
    return error.took_less > _WORTH_SAYING and 0 < -spare < needed * error.took_less
