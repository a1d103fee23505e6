"""batch-key-null"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, rule, safe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity

# Key → what Axolotl then computes with nothing in one place of it.
_SUMS = {
    "gradient_accumulation_steps": "batch_size // micro_batch_size, and there is no batch_size",
    "micro_batch_size": "micro_batch_size × gradient_accumulation_steps",
}


@rule(
    id="batch-key-null",
    severity=Severity.ERROR,
    topic="batch",
    bad="micro_batch_size: 2\ngradient_accumulation_steps:\nsequence_len: 2048\n",
    good="micro_batch_size: 2\ngradient_accumulation_steps: 1\nsequence_len: 2048\n",
    beyond_trainer="The schema takes null; the arithmetic behind it then divides nothing by a number (TypeError).",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A batch key is written without a value, and the run stops with a TypeError.

    A key that is left out gets Axolotl's default, 1. A key that is written but empty (`gradient_accumulation_steps:` or
    `null`) is not left out: the schema takes the null as the value, and the next thing Axolotl does is arithmetic with
    it.

    Delete the key, or write a number. An empty `gradient_accumulation_steps` together with `batch_size` does not crash:
    that case belongs to batch-size-set.
    """
    if run.config.get("batch_size"):
        return
    for key, sum_up in _SUMS.items():
        if key in run.config and run.config.document.values.get(key) is None:
            yield Hit(
                key=key,
                message=f"{key} is null: this is not the default 1; Axolotl computes {sum_up} and ends in a TypeError",
                fix=safe(f"Delete {key}: the default is 1", delete_key(key)),
            )
