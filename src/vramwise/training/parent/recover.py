"""Decides after an out-of-memory what the next attempt does differently.

Pure. The effective batch and the order of samples stay, so the loss curve stays: only the number of samples per pass
changes. In evaluation that is the eval batch, in training the micro-batch against the accumulation. The prediction
chooses the size: the largest that is predicted to fit, not half of the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from vramwise.training.plan import TrainPlan
from vramwise.variants.changes import sizes_below

# Whether a plan would fit; None if unknown.
Fits = Callable[[TrainPlan], bool | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The next attempt, and the sentence that says what changed."""

    plan: TrainPlan
    message: str


def next_attempt(plan: TrainPlan, phase: str, checkpoint: str | None, fits: Fits | None = None) -> Recovery | None:
    """Return the next attempt from a checkpoint (None: the start); None if nothing can be made smaller.

    `phase`: where memory ran out. If `fits` cannot say, half the size is tried.
    """
    if phase == "load":  # a model that does not fit has no batch to make smaller
        return None
    evaluating = phase == "eval"
    plans = list(_smaller_evals(plan, checkpoint) if evaluating else _smaller_micros(plan, checkpoint))
    if not plans:
        return None
    chosen, why = _choose(plans, fits or _nobody_knows, plan)
    since = "the start" if checkpoint is None else f"checkpoint {checkpoint}"
    if evaluating:
        words = f"eval batch {plan.eval_batch_size} → {chosen.eval_batch_size}, training unchanged"
    else:
        before = f"{plan.micro_batch_size} × {plan.gradient_accumulation_steps}"
        after = f"{chosen.micro_batch_size} × {chosen.gradient_accumulation_steps}"
        words = f"micro-batch × accumulation {before} → {after}, effective batch as before"
    return Recovery(plan=chosen, message=f"{words}{why}, from {since}")


def _smaller_evals(plan: TrainPlan, checkpoint: str | None) -> Iterator[TrainPlan]:
    for size in range((plan.eval_batch_size or 1) - 1, 0, -1):
        yield plan.restarted(resume_from=checkpoint, eval_batch_size=size)


def _smaller_micros(plan: TrainPlan, checkpoint: str | None) -> Iterator[TrainPlan]:
    """Yield smaller micro-batches with more accumulation, the largest first; the product stays (6 × 2 → 4 × 3)."""
    for micro, accumulation in sizes_below(plan.micro_batch_size, plan.gradient_accumulation_steps):
        yield plan.restarted(resume_from=checkpoint, micro_batch_size=micro, gradient_accumulation_steps=accumulation)


def _choose(plans: Sequence[TrainPlan], fits: Fits, failed: TrainPlan) -> tuple[TrainPlan, str]:
    """Return the first that is predicted to fit, and why; else the smallest, because the prediction may be too high."""
    for plan in plans:
        answer = fits(plan)
        if answer is None:
            return next(one for one in plans if _at_most_half(one, failed)), ""
        if answer:
            return plan, ", predicted to fit"
    return plans[-1], ", the smallest there is, though predicted not to fit either"


def _nobody_knows(_plan: TrainPlan) -> None:
    """Return None: there is no prediction."""


def _at_most_half(plan: TrainPlan, failed: TrainPlan) -> bool:
    """Return whether a plan's batch is at most half of the one that failed."""
    if plan.micro_batch_size != failed.micro_batch_size:
        return 2 * plan.micro_batch_size <= failed.micro_batch_size
    return 2 * (plan.eval_batch_size or 1) <= (failed.eval_batch_size or 1)
