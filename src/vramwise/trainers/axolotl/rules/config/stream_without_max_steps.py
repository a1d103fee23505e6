"""stream-without-max-steps"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="stream-without-max-steps",
    severity=Severity.ERROR,
    topic="config",
    bad="pretraining_dataset:\n  - path: allenai/c4\n    name: en\n",
    good="pretraining_dataset:\n  - path: allenai/c4\n    name: en\nmax_steps: 1000\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Streamed data without `max_steps`.

    A stream has no known length, so neither the number of steps nor the learning-rate schedule can be derived from
    epochs. Axolotl refuses `pretraining_dataset` and `streaming: true` unless `max_steps` says when to stop.

    Steps for a number of tokens: tokens / (sequence_len × micro_batch_size × gradient_accumulation_steps × gpus).
    """
    if run.config.get("max_steps"):
        return
    for key in ("pretraining_dataset", "streaming"):
        if run.config.get(key):
            tokens = run.shapes.sequence_len * run.batch.effective_batch_size
            yield Hit(
                key=key,
                message=(
                    f"{key} without max_steps: a stream has no length, Axolotl refuses it; a step takes up to "
                    f"sequence_len {run.shapes.sequence_len} × effective batch {run.batch.effective_batch_size} = "
                    f"{tokens:,} tokens"
                ),
            )
            return
