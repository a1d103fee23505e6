"""Whether, when and at which batch size a run evaluates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from vramwise.types.sections import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Sizes are None if the run does not evaluate."""

    neutral_why: ClassVar[str] = "nothing is evaluated"

    evaluates: bool = field(metadata=setting(False, compared=False))
    eval_batch_size: int | None = field(metadata=setting(None, compared=False))
    eval_sequence_len: int | None = field(metadata=setting(None, compared=False))
    eval_sample_packing: bool = field(metadata=setting(False, compared=False))
    # False: samples are held out, but no evaluation is scheduled
    eval_scheduled: bool = field(metadata=setting(True, compared=False))
    eval_on_start: bool = field(
        metadata=setting(False, compared=False, plain="the plain Trainer evaluates on schedule")
    )
    eval_steps: float | None = field(metadata=setting(None, compared=False))
    # evaluation empties the cache after so many batches; None: never
    eval_empties_every: int | None = field(
        metadata=setting(
            None, phrase="cache emptied during evaluations", plain="the plain Trainer keeps the losses and the cache"
        )
    )
