"""What weights and optimizer states take."""

from __future__ import annotations

from vramwise.types import Change, RunSpec
from vramwise.variants.changes.base import change

_PLAIN_ADAM = ("adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_torch_xla", "adamw_apex_fused")
_HANDLED_NAMES = {
    "ao_adamw_4bit": "adamw_torch_4bit",
    "ao_adamw_8bit": "adamw_torch_8bit",
    "ao_adamw_fp8": "adamw_torch_fp8",
}


def eight_bit_optimizer(run: RunSpec) -> Change | None:
    """States of one byte instead of two or four."""
    if run.optimizer not in _PLAIN_ADAM or run.sharding.startswith("fsdp") or run.offload_optimizer:
        return None
    return change(
        "eight-bit-optimizer",
        "changes",
        "Keep the optimizer's state in 8 bits",
        "moments are rounded to 8 bits at every step",
        optimizer="adamw_bnb_8bit",
    )


def unpaged_optimizer(run: RunSpec) -> Change | None:
    """The same optimizer without paging."""
    paged = run.optimizer.startswith("paged_")
    name = "adamw_torch_fused" if paged and "8bit" not in run.optimizer else "adamw_bnb_8bit"
    title = f"Use {name}, which does not page"
    return change("unpaged-optimizer", "changes", title, "another implementation", optimizer=name)


def handled_optimizer(run: RunSpec) -> Change | None:
    """torchao's optimizers under the names that are handled."""
    name = _HANDLED_NAMES.get(run.optimizer)
    if name is None:
        return None
    title = f"Use the name that the trainer handles: {name}"
    return change("handled-optimizer", "changes", title, "the run stops without it", optimizer=name)


def fused_adamw(run: RunSpec) -> Change | None:
    """The AdamW that every torch has."""
    name = "adamw_torch_fused"
    if run.optimizer == name:
        return None
    return change("fused-adamw", "changes", f"Train with AdamW: {name}", "another optimizer", optimizer=name)


def quantize_base(run: RunSpec) -> Change | None:
    """LoRA on a 4-bit base."""
    if run.adapter != "lora" or run.quantization:
        return None
    return change(
        "quantize-base",
        "changes",
        "Load the base in 4 bits: QLoRA",
        "the base's weights are rounded to 4 bits",
        adapter="qlora",
        quantization="4bit",
    )
