"""Changes of the optimizer's states, and of the experts of a quantised base."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.models.families import find_type
from vramwise.types import Change, RunSpec
from vramwise.variants.changes.base import kind

PLAIN_ADAM = ("adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_torch_xla", "adamw_apex_fused")
_HANDLED_NAMES = {
    "ao_adamw_4bit": "adamw_torch_4bit",
    "ao_adamw_8bit": "adamw_torch_8bit",
    "ao_adamw_fp8": "adamw_torch_fp8",
}
PAGED_ADAM = "paged_adamw_32bit"
_TORCH, _FUSED = "adamw_torch", "adamw_torch_fused"
_BYTES, _PAGED_BYTES = "adamw_bnb_8bit", "paged_adamw_8bit"
_ONE_BYTE_NAMES = (_BYTES, "adamw_8bit", _PAGED_BYTES)

FUSED_STEP = kind("fused-optimizer")
LOOPED_STEP = kind("looped-optimizer")
PAGED = kind("paged-optimizer")
UNPAGED = kind("resident-optimizer")
EIGHT_BIT = kind("eight-bit-optimizer")
EXPERTS = kind("quantize-experts")


def eight_bit_optimizer(run: RunSpec) -> Change | None:
    """Use one-byte optimizer states."""
    if run.optimizer.name not in PLAIN_ADAM or run.sharding.is_fsdp or run.sharding.offload_optimizer:
        return None
    return EIGHT_BIT.to(optimizer=_BYTES)


def eight_bit_optimizers(run: RunSpec) -> Iterator[Change]:
    """Yield one-byte optimizer states: resident, and paged."""
    if (
        run.optimizer.name not in (*PLAIN_ADAM, PAGED_ADAM)
        or run.sharding.tensor_parallel_size > 1
        or not _takes_pages(run)
    ):
        return
    for name in (_BYTES, _PAGED_BYTES):
        yield EIGHT_BIT.to(f"{EIGHT_BIT.what}: {name}", optimizer=name)


def same_optimizers(run: RunSpec) -> Iterator[Change]:
    """Yield other implementations of the current optimizer, with states of the same dtype."""
    if run.sharding.tensor_parallel_size > 1 or (run.sharding.zero is not None and run.sharding.zero.optimizer):
        return
    if run.optimizer.name in (_TORCH, _FUSED, PAGED_ADAM):
        yield from _whole(run)
    elif run.optimizer.name in _ONE_BYTE_NAMES and _takes_pages(run):
        paged = run.optimizer.name == _PAGED_BYTES
        yield UNPAGED.to(optimizer=_BYTES) if paged else PAGED.to(optimizer=_PAGED_BYTES)


def _whole(run: RunSpec) -> Iterator[Change]:
    """Yield other implementations with full-precision states.

    bitsandbytes always keeps fp32 states; torch's have the dtype of the trained weights.
    """
    wide = run.adapter.kind is not None or run.precision.weights_dtype == "fp32"
    if run.optimizer.name == PAGED_ADAM and not (wide and _takes_pages(run)):
        return
    if run.optimizer.name != _FUSED and not run.sharding.offload_optimizer:
        yield FUSED_STEP.to(f"{FUSED_STEP.what}: {_FUSED}", optimizer=_FUSED)
    if run.optimizer.name != _TORCH and not run.sharding.offload_optimizer:
        yield LOOPED_STEP.to(f"{LOOPED_STEP.what}: {_TORCH}", optimizer=_TORCH)
    if run.optimizer.name != PAGED_ADAM and wide and _takes_pages(run):
        yield PAGED.to(optimizer=PAGED_ADAM)


def _takes_pages(run: RunSpec) -> bool:
    return run.sharding.kind in ("none", "ddp") and not _on_amd(run)


def _on_amd(run: RunSpec) -> bool:
    return run.target.gpu is not None and run.target.gpu.vendor == "amd"


def unpaged_optimizer(run: RunSpec) -> Change | None:
    """Use an equivalent optimizer without paging."""
    paged = run.optimizer.name.startswith("paged_")
    name = "adamw_torch_fused" if paged and "8bit" not in run.optimizer.name else "adamw_bnb_8bit"
    return kind("unpaged-optimizer").to(f"Use {name}, which does not page", optimizer=name)


def handled_optimizer(run: RunSpec) -> Change | None:
    """Use torchao's optimizers under the names that the trainer supports."""
    name = _HANDLED_NAMES.get(run.optimizer.name)
    if name is None:
        return None
    return kind("handled-optimizer").to(f"Use a name the trainer supports: {name}", optimizer=name)


def fused_adamw(run: RunSpec) -> Change | None:
    """Use torch's fused AdamW."""
    if run.optimizer.name == _FUSED:
        return None
    return kind("fused-adamw").to(f"Train with AdamW: {_FUSED}", optimizer=_FUSED)


def quantize_experts(run: RunSpec) -> Change | None:
    """Quantise experts like the rest of the base: their 3-D weights otherwise stay in 16 bits."""
    linear = run.adapter.lora_target_linear
    if run.loading.expert_quantization or run.adapter.kind not in ("lora", "qlora") or linear or not has_experts(run):
        return None
    if run.loading.quantization not in ("4bit", "8bit") or _on_amd(run) or run.sharding.kind not in ("none", "ddp"):
        return None
    return EXPERTS.to(expert_quantization=run.loading.quantization)


def has_experts(run: RunSpec) -> bool:
    """Return whether models of this type are mixtures of experts; False if the model is unknown."""
    found = find_type(run.model_type) if run.model_type else None
    if found is None:
        return False
    family, model_type = found
    return (model_type.block or family.block).mixture is not None
