"""optimizer-step-peak"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.units import gib


@rule(
    id="optimizer-step-peak",
    severity=Severity.INFO,
    topic="optimizer",
    needs={"memory"},
    bad=(
        "base_model: Qwen/Qwen2.5-0.5B\nsequence_len: 512\npad_to_sequence_len: true\nmicro_batch_size: 1\nbf16: true\n"
        "optimizer: adamw_torch\ngradient_checkpointing: true\nattn_implementation: flash_attention_2\n"
    ),
    good=(
        "base_model: Qwen/Qwen2.5-0.5B\nsequence_len: 512\npad_to_sequence_len: true\nmicro_batch_size: 1\nbf16: true\n"
        "optimizer: adamw_torch_fused\ngradient_checkpointing: true\nattn_implementation: flash_attention_2\n"
    ),
    options="--gpu h100",
    beyond_trainer="The trainer does not check memory; vramwise simulates the run.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The optimizer step, not forward or backward, is the peak.

    An optimizer that processes all parameters at once (foreach) creates temporaries of about their size, in addition
    to weights, gradients and states. A smaller micro-batch or a shorter sequence then does not reduce the peak. Fused
    AdamW needs no temporaries and gives the same result up to rounding; 8-bit and factored optimizers hold smaller
    states.
    """
    if memory is None:
        return
    step = [peak.peak_allocated_bytes for peak in memory.phases if peak.phase == "optimizer"]
    rest = [
        peak.peak_allocated_bytes for peak in memory.phases if peak.phase in ("forward", "loss", "backward", "eval")
    ]
    if step and rest and max(step) > max(rest):
        yield Hit(
            field="optimizer",
            message=(
                f"the step of {run.optimizer.name} allocates {gib(max(step))}, forward and backward {gib(max(rest))}: "
                "a smaller micro-batch would not reduce the peak"
            ),
        )
