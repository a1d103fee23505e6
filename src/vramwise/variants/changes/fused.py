"""Kernels that replace parts of the model: of the loss, Liger's others, and those of LoRA."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.facts.liger import has_fused_loss, liger_kernels
from vramwise.types import Change, RunSpec
from vramwise.variants.changes.base import Kind

_SAME_LOSS = "the same loss from the same hidden states, in chunks: rounding alone differs"
_SAME_PARTS = "the same functions in other kernels: rounding alone differs"
_SAME_ADAPTER = "the same products of the same matrices in other kernels: rounding alone differs"
FUSE_LOSS = Kind(
    "fuse-loss",
    "rounding",
    "Compute the loss without holding the logits: Liger's fused linear cross entropy",
    _SAME_LOSS,
)
CHUNK_LOSS = Kind("chunk-loss", "rounding", "Take the logits to fp32 a slice at a time: chunked loss", _SAME_LOSS)
PLAIN_LOSS = Kind(
    "plain-loss",
    "rounding",
    "Compute the loss of all logits at once: the stock loss",
    "the same loss from the same hidden states: rounding alone differs",
)
LIGER_ON = Kind("liger-kernels", "rounding", "Use Liger's kernels", _SAME_PARTS)
LIGER_OFF = Kind("no-liger-kernels", "rounding", "Use the model's own kernels, not Liger's", _SAME_PARTS)
LORA_KERNELS_ON = Kind("lora-kernels", "rounding", "Run LoRA in fused kernels", _SAME_ADAPTER)
LORA_KERNELS_OFF = Kind("no-lora-kernels", "rounding", "Run LoRA without fused kernels", _SAME_ADAPTER)
_LOSSES = {"liger_fused_linear": FUSE_LOSS, "chunked": CHUNK_LOSS, "stock": PLAIN_LOSS}
_LORA_KERNELS = ("mlp", "qkv", "o")


def fuse_loss(run: RunSpec) -> Change | None:
    """A loss that never holds tokens × vocabulary."""
    if run.kernels.loss_kernel not in ("stock", "chunked", "liger") or run.objective.rl:
        return None
    return FUSE_LOSS.to(loss_kernel="liger_fused_linear")


def losses(run: RunSpec) -> Iterator[Change]:
    """Other kernels for the same cross entropy; losses of their own (and what stands against Liger) stay."""
    if run.objective.kind != "tokens" or run.objective.rl or run.kernels.loss_kernel not in (*_LOSSES, "liger"):
        return
    for value, kind in _LOSSES.items():
        made = value != "liger_fused_linear" or (
            has_fused_loss(run.model_type) and run.sharding.tensor_parallel_size == 1
        )
        if value != run.kernels.loss_kernel and made:
            yield kind.to(loss_kernel=value)


def liger_parts(run: RunSpec) -> Iterator[Change]:
    """All of Liger's kernels that the model has, or none of them."""
    kernels = liger_kernels(run.model_type)
    if run.sharding.tensor_parallel_size > 1 or run.savings.tiled_mlp or not kernels:
        return
    if run.kernels.liger:
        yield LIGER_OFF.to(liger=())
    if set(run.kernels.liger) != set(kernels):
        names = ", ".join(name.replace("_", " ") for name in kernels)
        yield LIGER_ON.to(f"{LIGER_ON.what}: {names}", liger=kernels)


def lora_kernels(run: RunSpec) -> Iterator[Change]:
    """LoRA's fused kernels, on or off, where weights are readable to them."""
    if run.adapter.kind not in ("lora", "qlora"):
        return
    if run.adapter.fused_lora:
        yield LORA_KERNELS_OFF.to(fused_lora=())
    readable = (
        run.loading.quantization in (None, "4bit") and run.objective.rl is None and run.objective.kind == "tokens"
    )
    if (
        readable
        and not set(_LORA_KERNELS) <= set(run.adapter.fused_lora)
        and run.sharding.kind not in ("fsdp1", "zero3")
    ):
        yield LORA_KERNELS_ON.to(fused_lora=_LORA_KERNELS)
