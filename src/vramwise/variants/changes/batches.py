"""How many samples pass at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vramwise.types import Change, RunSpec
from vramwise.variants.changes.base import change

# No card takes more rows at once; a number beyond it is a slip, and must not be counted down from.
_MOST_ROWS = 65536


def sizes_below(micro: int, accumulation: int) -> Iterator[tuple[int, int]]:
    """Every smaller micro-batch with its accumulation, the largest first; 6 × 2 → 4 × 3, 3 × 4, 2 × 6, 1 × 12."""
    product = micro * accumulation
    for size in range(min(micro - 1, _MOST_ROWS), 0, -1):
        if product % size == 0:
            yield size, product // size


def smaller_sizes(micro: int, accumulation: int) -> Iterator[tuple[int, int]]:
    """Those of at most half the size; 5 × 2 → 2 × 5, 1 × 10."""
    return (sizes for sizes in sizes_below(micro, accumulation) if 2 * sizes[0] <= micro)


def smaller_micro_batches(run: RunSpec) -> Iterator[Change]:
    """Every smaller micro-batch against more accumulation, the largest first."""
    for micro, accumulation in smaller_sizes(run.micro_batch_size, run.gradient_accumulation_steps):
        yield _micro_batch(run, micro, accumulation)


def halve_micro_batch(run: RunSpec) -> Change | None:
    """The largest micro-batch of at most half the size that keeps the effective batch."""
    return next(smaller_micro_batches(run), None)


def one_row(run: RunSpec) -> Change | None:
    """A micro-batch of one."""
    if run.micro_batch_size == 1:
        return None
    return _micro_batch(run, 1, run.micro_batch_size * run.gradient_accumulation_steps)


def _micro_batch(run: RunSpec, micro: int, accumulation: int) -> Change:
    before = (run.micro_batch_size, run.gradient_accumulation_steps)
    fields: dict[str, Any] = {"micro_batch_size": micro, "gradient_accumulation_steps": accumulation}
    if run.eval_batch_size is not None and run.eval_batch_size > micro:
        fields["eval_batch_size"] = micro
    return change(
        "smaller-micro-batch",
        "same",
        f"Micro-batch {before[0]} → {micro}, accumulation {before[1]} → {accumulation}: same effective batch",
        "micro-batch × accumulation stays, so each optimizer step sees the same samples",
        **fields,
    )


def equal_eval_batch(run: RunSpec) -> Change | None:
    """Evaluate in the shapes of training."""
    if run.eval_batch_size in (None, run.micro_batch_size):
        return None
    return change(
        "equal-eval-batch",
        "same",
        f"Evaluate at the training micro-batch: {run.micro_batch_size}",
        "the same samples are evaluated, in other groups",
        eval_batch_size=run.micro_batch_size,
    )


def no_automatic_batch(run: RunSpec) -> Change | None:
    """A batch that is written stays as it is."""
    return change(
        "no-automatic-batch",
        "changes",
        "Set the batches yourself and evaluate at the micro-batch",
        "a batch that halves by itself does not raise the accumulation: the effective batch changes",
        automatic_batch=False,
        eval_batch_size=run.micro_batch_size,
    )
