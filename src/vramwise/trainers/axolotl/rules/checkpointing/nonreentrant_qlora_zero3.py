"""nonreentrant-qlora-zero3"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes

_KEY = "gradient_checkpointing_kwargs.use_reentrant"


@rule(
    id="nonreentrant-qlora-zero3",
    severity=Severity.WARNING,
    topic="checkpointing",
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\nadapter: qlora\nload_in_4bit: true\ngradient_checkpointing: true\n"
        "gradient_checkpointing_kwargs:\n  use_reentrant: false\ndeepspeed:\n  zero_optimization:\n    stage: 3\n"
    ),
    good=(
        "base_model: meta-llama/Llama-3.2-1B\nadapter: qlora\nload_in_4bit: true\ngradient_checkpointing: true\n"
        "gradient_checkpointing_kwargs:\n  use_reentrant: true\ndeepspeed:\n  zero_optimization:\n    stage: 3\n"
    ),
    options="--gpus 2",
    beyond_trainer="Axolotl warns only if the path in `deepspeed:` contains zero3; inline blocks and other names pass.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Non-reentrant checkpointing with QLoRA under ZeRO 3.

    ZeRO 3 gathers a layer's weights for forward and lets them go; in the recomputation the gathered tensors can have
    other metadata than the first time, and non-reentrant checkpointing compares them: the run ends in a
    CheckpointError about recomputed values. Reentrant checkpointing does not compare.
    """
    if (
        run.adapter.kind != "qlora"
        or run.sharding.kind != "zero3"
        or not run.savings.recompute
        or run.savings.checkpointing_reentrant
    ):
        return
    how = "use_reentrant: false" if _KEY in run.config else "non-reentrant checkpointing (the default here)"
    yield Hit(
        key=_KEY,
        near=("gradient_checkpointing", "deepspeed"),
        message=f"{how} with QLoRA under ZeRO 3: recomputed tensors can differ, which ends in a CheckpointError",
        change=changes.reentrant_checkpointing(run),
    )
