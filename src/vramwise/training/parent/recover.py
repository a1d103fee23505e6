"""After an out-of-memory: what the next attempt does differently.

Pure. The effective batch and the order of samples stay, so the loss curve stays: only how many samples pass through the
model at a time changes. In evaluation that is the eval batch, in training the micro-batch against the accumulation.
"""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.training.plan import TrainPlan
from vramwise.variants.changes import smaller_sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The next attempt, and the sentence that says what changed."""

    plan: TrainPlan
    message: str


def next_attempt(plan: TrainPlan, phase: str, checkpoint: str | None) -> Recovery | None:
    """The next attempt, from a checkpoint (None: the start); None where nothing can be halved any more."""
    since = "the start" if checkpoint is None else f"checkpoint {checkpoint}"
    if phase == "eval" and plan.eval_batch_size is not None and plan.eval_batch_size > 1:
        half = plan.eval_batch_size // 2
        return Recovery(
            plan=plan.restarted(resume_from=checkpoint, eval_batch_size=half),
            message=f"eval batch {plan.eval_batch_size} → {half}, training unchanged, from {since}",
        )
    if phase in ("eval", "load") or plan.micro_batch_size <= 1:  # a model that does not fit has no batch to halve
        return None
    micro, accumulation = halved(plan.micro_batch_size, plan.gradient_accumulation_steps)
    batches = f"{plan.micro_batch_size} × {plan.gradient_accumulation_steps} → {micro} × {accumulation}"
    return Recovery(
        plan=plan.restarted(resume_from=checkpoint, micro_batch_size=micro, gradient_accumulation_steps=accumulation),
        message=f"micro-batch × accumulation {batches}, effective batch as before, from {since}",
    )


def halved(micro: int, accumulation: int) -> tuple[int, int]:
    """Half the micro-batch against more accumulation; the product stays.

    Where the micro-batch is odd: the largest one below half of it that divides the product (5 × 2 → 2 × 5).
    """
    return next(smaller_sizes(micro, accumulation))
