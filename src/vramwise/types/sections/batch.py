"""How many samples a step takes, and on how many GPUs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """effective_batch_size = micro_batch_size × gradient_accumulation_steps × data_parallel."""

    gpus: int
    data_parallel: int  # GPUs that take different samples
    micro_batch_size: int
    gradient_accumulation_steps: int
    effective_batch_size: int


NEUTRAL = Batch(gpus=1, data_parallel=1, micro_batch_size=1, gradient_accumulation_steps=1, effective_batch_size=1)
NEUTRAL_WHY = "one sample a step"
