"""The duration of a training: its steps, from schedule and data, at the predicted speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from vramwise.types import RunSpec, Schedule
from vramwise.variants.lengths import Lengths

if TYPE_CHECKING:
    from vramwise.variants.speed import Speed

_HOUR = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """Steps and hours of training only; evaluations, checkpoints and loading come on top.

    `basis` says what the steps were counted from. `at_least`: only part of the data was read.
    """

    steps: int
    hours: float
    basis: str
    at_least: bool = False


def duration(run: RunSpec, schedule: Schedule, lengths: Lengths | None, speed: Speed) -> Duration | None:
    """Return the duration; None if neither steps nor data are known, or if the steps generate their own data."""
    if schedule.max_steps is not None:
        basis = f"{schedule.max_steps:,} step{'s' * (schedule.max_steps != 1)}"
        return Duration(steps=schedule.max_steps, hours=schedule.max_steps * speed.step_seconds / _HOUR, basis=basis)
    if lengths is None or run.objective.completion_len is not None:
        return None
    samples = _samples(run, lengths, schedule)
    if not samples:
        return None
    # "single": the rows of a batch are joined, but each is still one sample
    fills = run.shapes.packing_rows != "none" and run.shapes.packing_fill != "single"
    rows = sum(samples) / run.shapes.sequence_len if fills else len(samples)
    # the last step of every epoch may be incomplete
    steps = max(1, ceil(schedule.epochs * ceil(rows / run.batch.effective_batch_size)))
    passes = "1 epoch" if schedule.epochs == 1 else f"{schedule.epochs:g} epochs"
    packed = ", packed without gaps" if fills else ""
    return Duration(
        steps=steps,
        hours=steps * speed.step_seconds / _HOUR,
        basis=f"{passes} of {len(samples):,} samples{packed}",
        at_least=not lengths.whole,
    )


def _samples(run: RunSpec, lengths: Lengths, schedule: Schedule) -> Sequence[int]:
    """Return the length of every trained sample, without those dropped for their length and those held out."""
    each = 2 if lengths.pairs else 1
    longest = [max(lengths.tokens[at : at + each]) for at in range(0, len(lengths.tokens), each)]
    if run.shapes.long_rows == "drop":
        kept = [length for length in longest if length <= run.shapes.sequence_len]
    else:
        kept = [min(length, run.shapes.sequence_len) for length in longest]
    return kept[: max(0, len(kept) - schedule.held_out_of(len(kept)))]
