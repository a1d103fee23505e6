"""How long a training takes: its steps, by its schedule and its data, each at the speed that was worked out."""

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
    """Steps and hours of training alone: evaluations, checkpoints and loading come on top.

    `basis` says what the steps were counted from; `at_least`: of the data only a part was read.
    """

    steps: int
    hours: float
    basis: str
    at_least: bool = False


def duration(run: RunSpec, schedule: Schedule, lengths: Lengths | None, speed: Speed) -> Duration | None:
    """None where neither the steps nor the data are known, and where steps make their own data."""
    if schedule.max_steps is not None:
        basis = f"{schedule.max_steps:,} step{'s' * (schedule.max_steps != 1)}"
        return Duration(steps=schedule.max_steps, hours=schedule.max_steps * speed.step_seconds / _HOUR, basis=basis)
    if lengths is None or run.objective.completion_len is not None:
        return None
    samples = _samples(run, lengths, schedule)
    if not samples:
        return None
    # "single": the rows of a batch are joined, and each is still one sample
    fills = run.shapes.packing_rows != "none" and run.shapes.packing_fill != "single"
    rows = sum(samples) / run.shapes.sequence_len if fills else len(samples)
    # the last step of every epoch takes what is left
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
    """The length of every sample that is trained on: none that is dropped for its length, none that is held out."""
    each = 2 if lengths.pairs else 1
    longest = [max(lengths.tokens[at : at + each]) for at in range(0, len(lengths.tokens), each)]
    if run.shapes.long_rows == "drop":
        kept = [length for length in longest if length <= run.shapes.sequence_len]
    else:
        kept = [min(length, run.shapes.sequence_len) for length in longest]
    return kept[: max(0, len(kept) - schedule.held_out_of(len(kept)))]
