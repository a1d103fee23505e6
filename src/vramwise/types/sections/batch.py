"""How many samples a step takes, and on how many GPUs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from vramwise.types.sections import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """effective_batch_size = micro_batch_size × gradient_accumulation_steps × data_parallel."""

    neutral_why: ClassVar[str] = "one sample a step"

    gpus: int = field(metadata=setting(1))
    data_parallel: int = field(metadata=setting(1))  # GPUs that take different samples
    micro_batch_size: int = field(metadata=setting(1))
    gradient_accumulation_steps: int = field(metadata=setting(1))
    effective_batch_size: int = field(metadata=setting(1, ghost=False))
