"""Rules for every trainer about the optimizer: its peak, and the torch that it needs."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.units import gib
from vramwise.variants import changes


@rule(
    id="optimizer-step-peak",
    severity=Severity.INFO,
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
def optimizer_step_peak(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
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


# ADOPT needs torch 2.5.1; a target has only minor versions, so 2.5 is accepted.
_OLDEST_TORCH = {"adopt_adamw": (2, 5)}


@rule(
    id="optimizer-torch-too-old",
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: adopt_adamw\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: adopt_adamw\n",
    options="--torch 2.4",
    good_options="--torch 2.8",
)
def optimizer_torch_too_old(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The optimizer needs a newer torch than the target has.

    ADOPT (`adopt_adamw`) uses functions that torch has from 2.5.1 on. On anything older, the trainer rejects the file
    or, in versions without the check, the optimizer fails when it is created. Upgrade torch, or train with AdamW.
    """
    oldest = _OLDEST_TORCH.get(run.optimizer.name)
    if oldest is None or run.target.torch >= oldest:
        return
    have = ".".join(str(part) for part in run.target.torch)
    yield Hit(
        field="optimizer",
        message=(
            f"optimizer {run.optimizer.name} needs torch 2.5.1, but the target has {have}: the run stops when the "
            "optimizer is created, if not earlier"
        ),
        change=changes.fused_adamw(run),
    )
