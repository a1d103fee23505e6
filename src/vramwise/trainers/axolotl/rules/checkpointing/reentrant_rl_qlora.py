"""reentrant-rl-qlora"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes

_KEY = "gradient_checkpointing_kwargs.use_reentrant"


@rule(
    id="reentrant-rl-qlora",
    severity=Severity.ERROR,
    topic="checkpointing",
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\nrl: dpo\nadapter: qlora\nload_in_4bit: true\n"
        "gradient_checkpointing: true\ngradient_checkpointing_kwargs:\n  use_reentrant: true\n"
    ),
    good=(
        "base_model: meta-llama/Llama-3.2-1B\nrl: dpo\nadapter: qlora\nload_in_4bit: true\n"
        "gradient_checkpointing: true\ngradient_checkpointing_kwargs:\n  use_reentrant: false\n"
    ),
    options="--gpus 2",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Reentrant checkpointing in RL with QLoRA on several GPUs.

    TRL's trainers do not work with reentrant checkpointing there, and Axolotl stops. The non-reentrant form is the
    default in RL and gives the same result. On one GPU the pair is accepted.
    """
    if run.objective.rl is None or run.loading.quantization != "4bit" or run.batch.gpus < 2:
        return
    if run.savings.gradient_checkpointing and run.config.get(_KEY):
        yield Hit(
            key=_KEY,
            message=(
                f"use_reentrant: true in rl {run.objective.rl} with QLoRA on {run.batch.gpus} GPUs is not "
                "supported: Axolotl stops"
            ),
            change=changes.nonreentrant_checkpointing(run),
        )
