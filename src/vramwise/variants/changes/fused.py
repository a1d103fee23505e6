"""Changes of kernels that replace parts of the model: the loss, other Liger kernels, and LoRA kernels."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.facts.liger import has_fused_loss, liger_kernels
from vramwise.types import Change, RunSpec
from vramwise.variants.changes.base import kind

FUSE_LOSS = kind("fuse-loss")
CHUNK_LOSS = kind("chunk-loss")
PLAIN_LOSS = kind("plain-loss")
LIGER_ON = kind("liger-kernels")
LIGER_OFF = kind("no-liger-kernels")
LORA_KERNELS_ON = kind("lora-kernels")
LORA_KERNELS_OFF = kind("no-lora-kernels")
_LOSSES = {"liger_fused_linear": FUSE_LOSS, "chunked": CHUNK_LOSS, "stock": PLAIN_LOSS}
_LORA_KERNELS = ("mlp", "qkv", "o")


def fuse_loss(run: RunSpec) -> Change | None:
    """Use a loss that never holds the logits of all tokens."""
    if run.kernels.loss_kernel not in ("stock", "chunked", "liger") or run.objective.rl:
        return None
    return FUSE_LOSS.to(loss_kernel="liger_fused_linear")


def losses(run: RunSpec) -> Iterator[Change]:
    """Yield other kernels for the same cross entropy; special losses, and those that conflict with Liger, stay."""
    if run.objective.kind != "tokens" or run.objective.rl or run.kernels.loss_kernel not in (*_LOSSES, "liger"):
        return
    for value, loss in _LOSSES.items():
        made = value != "liger_fused_linear" or (
            has_fused_loss(run.model_type) and run.sharding.tensor_parallel_size == 1
        )
        if value != run.kernels.loss_kernel and made:
            yield loss.to(loss_kernel=value)


def liger_parts(run: RunSpec) -> Iterator[Change]:
    """Yield all Liger kernels that the model supports, or none of them."""
    kernels = liger_kernels(run.model_type)
    if run.sharding.tensor_parallel_size > 1 or run.savings.tiled_mlp or not kernels:
        return
    if run.kernels.liger:
        yield LIGER_OFF.to(liger=())
    if set(run.kernels.liger) != set(kernels):
        names = ", ".join(name.replace("_", " ") for name in kernels)
        yield LIGER_ON.to(f"{LIGER_ON.what}: {names}", liger=kernels)


def lora_kernels(run: RunSpec) -> Iterator[Change]:
    """Yield fused LoRA kernels on or off, if they can read the weights."""
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
