"""grpo-liger-sequence-parallel"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity


@rule(
    id="grpo-liger-sequence-parallel",
    severity=Severity.ERROR,
    topic="loss",
    bad="rl: grpo\ntrl:\n  use_liger_loss: true\ncontext_parallel_size: 2\n",
    good="rl: grpo\ntrl:\n  use_liger_loss: false\ncontext_parallel_size: 2\n",
    options="--gpus 2",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """GRPO with Liger's loss and a sequence split over GPUs.

    Liger's fused GRPO loss wants the whole sequence of every sample, and context parallelism gives each GPU a part of
    it. Axolotl refuses the combination.

    Choose one: Liger's loss saves the logits (tokens × vocabulary), context parallelism divides activations by the
    GPUs.
    """
    size = run.config.get("context_parallel_size", 1)
    if run.objective.rl == "grpo" and run.config.get("trl.use_liger_loss") and size > 1:
        message = (
            f"trl.use_liger_loss with context_parallel_size {size}: Liger's GRPO loss needs whole sequences, Axolotl "
            "refuses the file"
        )
        fix = unsafe("Compute the loss without Liger", set_key("trl.use_liger_loss", False))
        yield Hit(key="trl.use_liger_loss", message=message, fix=fix)
