"""Changes of the batch size."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from vramwise.types import Change, RunSpec
from vramwise.variants.changes.base import kind

# No card fits more rows at once. A larger number is a typing error, and is not enumerated.
_MOST_ROWS = 65536

SMALLER = kind("smaller-micro-batch")
LARGER = kind("larger-micro-batch")
EVAL_BATCH = kind("equal-eval-batch")
NO_EVALUATION = kind("no-evaluation")


@lru_cache(maxsize=64)
def sizes_of(product: int) -> tuple[tuple[int, int], ...]:
    """Return every micro-batch with its accumulation, the largest first: 6 → 6 × 1, 3 × 2, 2 × 3, 1 × 6."""
    return tuple([(size, product // size) for size in range(min(product, _MOST_ROWS), 0, -1) if product % size == 0])


def sizes_below(micro: int, accumulation: int) -> Iterator[tuple[int, int]]:
    """Return every smaller micro-batch with its accumulation, the largest first.

    6 × 2 → 4 × 3, 3 × 4, 2 × 6, 1 × 12.
    """
    return (sizes for sizes in sizes_of(micro * accumulation) if sizes[0] < micro)


def smaller_sizes(micro: int, accumulation: int) -> Iterator[tuple[int, int]]:
    """Return the sizes of at most half the micro-batch: 5 × 2 → 2 × 5, 1 × 10."""
    return (sizes for sizes in sizes_below(micro, accumulation) if 2 * sizes[0] <= micro)


def micro_batches(run: RunSpec) -> Iterator[Change]:
    """Yield every other micro-batch with the accumulation that keeps the effective batch, the largest first.

    Optimizers that step inside backward cannot accumulate gradients: with them the batch stays.
    """
    if run.optimizer.name.endswith("_layerwise"):
        return
    for micro, accumulation in sizes_of(run.batch.micro_batch_size * run.batch.gradient_accumulation_steps):
        if micro != run.batch.micro_batch_size and _holds_groups(run, micro):
            yield _micro_batch(run, micro, accumulation, eval_follows=True)


def _holds_groups(run: RunSpec, rows: int) -> bool:
    """Return whether an evaluation batch of this size consists of whole groups of completions, if it must."""
    return (
        run.objective.kind != "grpo"
        or not run.evaluation.evaluates
        or rows * run.batch.data_parallel % run.objective.rows_per_prompt == 0
    )


def smaller_micro_batches(run: RunSpec) -> Iterator[Change]:
    """Yield every micro-batch of at most half the size, with more accumulation, the largest first."""
    for micro, accumulation in smaller_sizes(run.batch.micro_batch_size, run.batch.gradient_accumulation_steps):
        yield _micro_batch(run, micro, accumulation)


def halve_micro_batch(run: RunSpec) -> Change | None:
    """Return the largest micro-batch of at most half the size that keeps the effective batch."""
    return next(smaller_micro_batches(run), None)


def one_row(run: RunSpec) -> Change | None:
    """Use a micro-batch of one."""
    if run.batch.micro_batch_size == 1:
        return None
    return _micro_batch(run, 1, run.batch.micro_batch_size * run.batch.gradient_accumulation_steps)


def _micro_batch(run: RunSpec, micro: int, accumulation: int, *, eval_follows: bool = False) -> Change:
    """`eval_follows`: evaluation always uses the new size; otherwise only if its own is larger."""
    before = (run.batch.micro_batch_size, run.batch.gradient_accumulation_steps)
    fields: dict[str, Any] = {"micro_batch_size": micro, "gradient_accumulation_steps": accumulation}
    if run.evaluation.eval_batch_size is not None and (eval_follows or run.evaluation.eval_batch_size > micro):
        fields["eval_batch_size"] = micro
    size = SMALLER if micro < run.batch.micro_batch_size else LARGER
    title = f"Micro-batch {before[0]} → {micro}, accumulation {before[1]} → {accumulation}: same effective batch"
    return size.to(title, **fields)


def equal_eval_batch(run: RunSpec) -> Change | None:
    """Evaluate with the batch size of training."""
    if run.evaluation.eval_batch_size in (None, run.batch.micro_batch_size) or not _holds_groups(
        run, run.batch.micro_batch_size
    ):
        return None
    micro = run.batch.micro_batch_size
    return EVAL_BATCH.to(f"{EVAL_BATCH.what}: {micro}", eval_batch_size=micro)


def no_evaluation(run: RunSpec) -> Change | None:
    """Do not evaluate during training."""
    return NO_EVALUATION.to(evaluates=False) if run.evaluation.evaluates else None


def no_automatic_batch(run: RunSpec) -> Change | None:
    """Use the batch size as written."""
    return kind("no-automatic-batch").to(automatic_batch=False, eval_batch_size=run.batch.micro_batch_size)
