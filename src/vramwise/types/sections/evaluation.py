"""Whether, when and at which batch size a run evaluates."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Sizes are None if the run does not evaluate."""

    evaluates: bool
    eval_batch_size: int | None
    eval_sequence_len: int | None
    eval_sample_packing: bool
    eval_scheduled: bool  # False: samples are held out, but no evaluation is scheduled
    eval_on_start: bool
    eval_steps: float | None
    eval_empties_every: int | None  # evaluation empties the cache after so many batches; None: never


NEUTRAL = Evaluation(
    evaluates=False,
    eval_batch_size=None,
    eval_sequence_len=None,
    eval_sample_packing=False,
    eval_scheduled=True,
    eval_on_start=False,
    eval_steps=None,
    eval_empties_every=None,
)
NEUTRAL_WHY = "nothing is evaluated"
