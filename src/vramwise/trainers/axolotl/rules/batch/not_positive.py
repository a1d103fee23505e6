"""not-positive"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity

_COUNTS = (
    "micro_batch_size",
    "gradient_accumulation_steps",
    "batch_size",
    "eval_batch_size",
    "sequence_len",
    "eval_sequence_len",
    "pad_to_multiple_of",
    "lora_r",
)


@rule(
    id="not-positive",
    severity=Severity.ERROR,
    topic="batch",
    bad="micro_batch_size: 0\ngradient_accumulation_steps: 4\n",
    good="micro_batch_size: 1\ngradient_accumulation_steps: 4\n",
    beyond_trainer="The schema takes any whole number; zero or less fails later, or is quietly read as unset.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A size or count is zero or negative.

    Batch sizes, lengths and ranks must be at least 1. The schema accepts any whole number, so a zero passes validation
    and fails after the model has loaded (division by zero, an empty batch), or counts as "not set" and the default is
    used without a word.
    """
    for key in _COUNTS:
        value = run.config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value < 1:
            yield Hit(key=key, message=f"{key} is {value}: it must be at least 1")
