"""Whether a run fits, as a kind and figures. All interfaces use this verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from vramwise.variants.prediction import Prediction

Kind = Literal["fits", "tight", "may_fit", "does_not_fit", "stops", "not_known", "no_card"]
# The names of the kinds, the same on every interface; `stops` is named by its errors.
NAMES: dict[Kind, str] = {
    "fits": "Fits",
    "tight": "Tight",
    "may_fit": "May not fit",
    "not_known": "Unknown whether it fits",
    "does_not_fit": "Does not fit",
    "no_card": "No card named",
}
# A smaller free share of the card can be used up by drivers, other processes and the prediction's error.
TIGHT = 0.05

# Phases whose tensors do not depend on the rows, except for the batches: at most so many bytes per token (ids, mask,
# labels, positions, for each completion).
_WITHOUT_ROWS = ("load", "optimizer")
_BYTES_A_TOKEN = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a run fits. The kind `stops` means that it does not start; `memory` then says whether it would fit.

    `short_bytes`: by how much it does not fit. `spare_bytes`: what stays free. One of them is 0. `rows_up_to`: it does
    not fit with the widest possible rows, but with rows of at most this many tokens. `least_bytes`, `most_bytes`: what
    the run may reserve, with the margin of what is not known and, if rows may be shorter than simulated, with rows of
    any length; the latter is None if nothing limits it. `within_error`: that margin leaves the verdict open.
    """

    kind: Kind
    memory: Kind
    short_bytes: int = 0
    spare_bytes: int = 0
    rows_up_to: int | None = None
    within_error: bool = False
    least_bytes: int = 0
    most_bytes: int | None = None


def verdict_of(prediction: Prediction, rows_up_to: int | None = None) -> Verdict:
    """Return the verdict on a prediction. `rows_up_to`: see Verdict; the caller finds it with further predictions."""
    memory = _memory(prediction, may_be_shorter=rows_up_to is not None)
    kind: Kind = "stops" if prediction.stops else memory
    capacity = prediction.capacity_bytes
    if capacity is None:
        return Verdict(kind=kind, memory=memory)
    needed, margin = prediction.judged_bytes, prediction.margin
    endless = _has_no_end(prediction) or prediction.rows_unlimited
    least = prediction.least_bytes
    if rows_up_to is not None or (prediction.rows_unlimited and memory == "may_fit"):
        least = min(least, without_rows(prediction))
    return Verdict(
        kind=kind,
        memory=memory,
        short_bytes=max(0, needed - capacity),
        spare_bytes=max(0, capacity - needed),
        rows_up_to=rows_up_to,
        within_error=memory == "may_fit" and rows_up_to is None,
        least_bytes=int(least * (1 - margin.less)),
        most_bytes=None if endless else int(prediction.most_bytes * (1 + margin.more)),
    )


def _memory(prediction: Prediction, *, may_be_shorter: bool) -> Kind:
    if prediction.capacity_bytes is None:
        return "no_card"
    fits = fits_with_margin(prediction)
    if fits is None:
        return "not_known" if _has_no_end(prediction) else "may_fit"
    if fits is False:
        return "may_fit" if may_be_shorter else "does_not_fit"
    if prediction.rows_unlimited:  # one long row decides
        return "may_fit"
    return "tight" if is_tight(prediction) else "fits"


def fits_with_margin(prediction: Prediction) -> bool | None:
    """Return whether memory is sufficient whatever the margin of the figure turns out to be.

    It fits if the most that the run may reserve does, and does not if the least does not, even where the allocator
    releases cached memory and retries. Everything between is None: such as a run that only retries may save.
    """
    capacity = prediction.capacity_bytes
    if capacity is None:
        return None
    runs, margin = prediction.report.out_of_memory is None, prediction.margin
    if runs and not _has_no_end(prediction) and prediction.most_bytes * (1 + margin.more) <= capacity:
        return True
    return False if _cannot_run(prediction, capacity, 1 - margin.less) else None


def _cannot_run(prediction: Prediction, capacity: int, share: float) -> bool:
    """Return whether a run stops even with this share of the memory that is predicted."""
    if prediction.least_bytes < prediction.needs.highest_reserved_bytes:  # simulated was the upper end of a range
        return prediction.least_bytes * share > capacity
    if prediction.needs.highest_allocated_bytes * share > capacity:  # memory for all live tensors is needed
        return True
    return (prediction.with_less_need or prediction.report).out_of_memory is not None


def without_rows(prediction: Prediction) -> int:
    """Return what weights, gradients and optimizer states need alone."""
    run = prediction.run
    tokens = run.batch.micro_batch_size * run.batch.gradient_accumulation_steps * run.shapes.sequence_len
    held = [peak.peak_allocated_bytes for peak in prediction.needs.phases if peak.phase in _WITHOUT_ROWS]
    return max(0, max(held, default=0) - tokens * _BYTES_A_TOKEN)


def _has_no_end(prediction: Prediction) -> bool:
    return prediction.bounds is not None and prediction.bounds.upper_bytes is None


def is_tight(prediction: Prediction) -> bool:
    """Return whether a run that fits has little memory to spare, or has to retry allocations."""
    capacity = prediction.capacity_bytes or 0
    spare = capacity - prediction.most_bytes
    return prediction.report.retries > 0 or spare < TIGHT * capacity
