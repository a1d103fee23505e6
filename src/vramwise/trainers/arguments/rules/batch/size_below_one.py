"""size-below-one"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity

_BASE = "model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\nfinetuning_type: lora\ndataset: identity\n"
_SIZES = (
    *("micro_batch_size", "eval_batch_size", "gradient_accumulation_steps", "sequence_len", "lora_r"),
    *("completion_len", "generation_rows"),
)


@rule(
    id="size-below-one",
    severity=Severity.ERROR,
    topic="batch",
    bad=f"{_BASE}per_device_train_batch_size: 0\n",
    good=f"{_BASE}per_device_train_batch_size: 1\n",
    beyond_trainer="Parsers accept any number; zero or less stops the run later, or trains on nothing.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A size or count is zero or negative.

    Batches, lengths, ranks and the accumulation must be at least 1. The dataclasses accept any number. A batch of 0
    stops torch's data loader after the model is loaded, a rank of 0 stops PEFT, and a length of 0 or less leaves
    nothing of a sample or cuts off its end.
    """
    for field in _SIZES:
        key = run.keys.get(field)
        value = run.config.get(key) if key is not None and run.value(field) is not None else None
        if isinstance(value, int | float) and value < 1:
            yield Hit(key=key, message=f"{key} is {value}: it must be at least 1")
