"""refused-by-unsloth"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.trainers.unsloth.refusals import refusals
from vramwise.types import RunSpec, Severity

_MODEL = "model: unsloth/Llama-3.2-1B\n"


@rule(
    id="refused-by-unsloth",
    severity=Severity.ERROR,
    topic="config",
    bad=f"{_MODEL}training:\n  max_seq_length: 2048\n  micro_batch_size: 2\n",
    good=f"{_MODEL}training:\n  max_seq_length: 2048\n  batch_size: 2\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """What Unsloth refuses before anything is trained.

    Its command takes no key that it does not know, in no section. In scripts, two of `load_in_4bit`, `load_in_8bit`,
    `load_in_16bit` and `load_in_fp8` at once stop `from_pretrained`; `fp16 = True` on weights in bfloat16, and
    `bf16 = True` on weights in float16, stop the trainer.
    """
    for key, why in refusals(run):
        yield Hit(key=key, message=why)
