"""LLaMA-Factory's own rules about the loss."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity

_BASE = "model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\nfinetuning_type: lora\ndataset: identity\n"
_LOSSES = ("use_dft_loss", "use_eaft_loss", "use_asft_loss")


@rule(
    id="weighted-loss-without-logits",
    still_runs=True,
    bad=f"{_BASE}use_dft_loss: true\nenable_liger_kernel: true\n",
    good=f"{_BASE}use_dft_loss: true\n",
    beyond_trainer="LLaMA-Factory's losses fall back to the default loss if there are no logits, without warning.",
)
def weighted_loss_without_logits(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A loss of LLaMA-Factory's own that never gets any logits.

    DFT, EAFT and ASFT weigh the cross entropy by the logits, outside of the model. `enable_liger_kernel` puts Liger's
    fused loss into the model in stages pt and sft, which returns no logits while training; the weighted loss then gives
    the plain one back. The run trains as if the key were not there. In any stage but sft these keys are not read.

    Switch Liger off, and count with the logits' memory, or drop the weighted loss.
    """
    for key in _LOSSES:
        if not run.config.get(key):
            continue
        stage = run.config.get("stage", "sft")
        if stage != "sft":
            message = f"{key} is not read in stage {stage}"
            yield Hit(message, key, severity=Severity.ERROR)
        elif run.config.get("enable_liger_kernel"):
            message = f"{key} beside enable_liger_kernel: Liger's loss returns no logits, so the default loss is used"
            fix = unsafe("Switch Liger off", set_key("enable_liger_kernel", False))
            yield Hit(message, key, fix)
