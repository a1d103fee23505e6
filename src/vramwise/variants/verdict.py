"""Whether a run fits, as a kind and figures. All interfaces use this verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from vramwise.variants.prediction import Prediction

Kind = Literal["fits", "tight", "may_fit", "does_not_fit", "stops", "not_known", "no_card"]
# A smaller free share of the card can be used up by drivers, other processes and the prediction's error.
TIGHT = 0.05
# Smaller errors do not put a verdict in doubt.
_WORTH_SAYING = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a run fits. The kind `stops` means that it does not start; `memory` then says whether it would fit.

    `short_bytes`: by how much it does not fit. `spare_bytes`: what stays free. One of them is 0. `rows_up_to`: it does
    not fit with the widest possible rows, but with rows of at most this many tokens. `within_error`: the error of
    similar measured runs is large enough to reverse the verdict.
    """

    kind: Kind
    memory: Kind
    short_bytes: int = 0
    spare_bytes: int = 0
    rows_up_to: int | None = None
    within_error: bool = False


def verdict_of(prediction: Prediction, rows_up_to: int | None = None) -> Verdict:
    """Return the verdict on a prediction. `rows_up_to`: see Verdict; the caller finds it with further predictions."""
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
    if prediction.rows_unlimited:  # one long row decides
        return "may_fit"
    return "tight" if is_tight(prediction) else "fits"


def is_tight(prediction: Prediction) -> bool:
    """Return whether a run that fits has little memory to spare, or has to retry allocations."""
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
