"""Changes of kernels: attention, the allocator, compiling, and those that replace parts of the model (the loss, other
Liger kernels, LoRA kernels).
"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.allocator.variables import EXPANDABLE
from vramwise.facts.attention import flash_stops, same_attention, uses_flash_library
from vramwise.facts.liger import has_fused_loss, liger_kernels
from vramwise.types import Change, RunSpec
from vramwise.variants.changes.base import kind

_FLASH = "flash_attention_2"
FUSED_ATTENTION = kind("fused-attention")
FLASH = kind("flash-attention")
EXPANDABLE_SEGMENTS = kind("expandable-segments")
FUSE_LOSS = kind("fuse-loss")
CHUNK_LOSS = kind("chunk-loss")
PLAIN_LOSS = kind("plain-loss")
LIGER_ON = kind("liger-kernels")
LIGER_OFF = kind("no-liger-kernels")
LORA_KERNELS_ON = kind("lora-kernels")
LORA_KERNELS_OFF = kind("no-lora-kernels")
COMPILE = kind("compile-model")
_LOSSES = {"liger_fused_linear": FUSE_LOSS, "chunked": CHUNK_LOSS, "stock": PLAIN_LOSS}
_LORA_KERNELS = ("mlp", "qkv", "o")


def fused_attention(run: RunSpec) -> Change | None:
    """Use attention that never materialises its scores."""
    if run.kernels.attn_implementation != "eager":
        return None
    return FUSED_ATTENTION.to(attn_implementation="sdpa")


def plain_attention(run: RunSpec) -> Change | None:
    """Use sdpa, which runs on every card and with every torch version."""
    if run.kernels.attn_implementation == "sdpa":
        return None
    return kind("plain-attention").to(attn_implementation="sdpa")


def flash_attention(run: RunSpec) -> Change | None:
    """Use FlashAttention 2, if the card supports it."""
    if run.kernels.attn_implementation == _FLASH or _before_ampere(run) or flash_stops(run):
        return None
    return FLASH.to(attn_implementation=_FLASH)


def attentions(run: RunSpec) -> Iterator[Change]:
    """Yield other backends with the same result: sdpa, and FlashAttention 2 if it is known to be installed.

    Eager is never chosen: it holds the scores and has no advantage. FlashAttention is neither added nor removed if it
    decides the dtype of trained embeddings, or if rows are packed, because it lays them out differently.
    """
    taken, present = same_attention(run.model_type), run.kernels.attn_implementation
    bound = _decides_embeddings(run) or run.shapes.sample_packing
    if present not in taken or (bound and present == _FLASH):
        return
    if present != "sdpa" and "sdpa" in taken:
        yield FUSED_ATTENTION.to(attn_implementation="sdpa")
    if not bound and _has_flash(run) and _FLASH in taken and (found := flash_attention(run)) is not None:
        yield found


def _decides_embeddings(run: RunSpec) -> bool:
    """Return whether attention decides the dtype of embeddings.

    For a fully trained model on one card, some trainers keep embeddings in fp32 only under sdpa and eager.
    """
    return run.adapter.kind is None and run.sharding.kind in ("none", "ddp") and run.precision.weights_dtype != "fp32"


def packing_attention(run: RunSpec) -> str | None:
    """Return a backend for packed rows with the same result as the current one, or None."""
    taken, present = same_attention(run.model_type), run.kernels.attn_implementation
    if present in ("sdpa", _FLASH):
        return present
    if present not in taken:
        return None
    if "sdpa" in taken:
        return "sdpa"
    return _FLASH if _has_flash(run) and _FLASH in taken else None


def _has_flash(run: RunSpec) -> bool:
    gpu = run.target.gpu
    there = uses_flash_library(run.kernels.attn_implementation) or run.kernels.flash_installed
    return (
        there
        and (gpu is None or gpu.vendor == "nvidia")
        and run.precision.weights_dtype != "fp32"
        and not _before_ampere(run)
    )


def separate_samples(run: RunSpec) -> Change | None:
    """Use a backend that knows the boundaries of packed samples."""
    if run.shapes.samples_apart:
        return None
    name = "sdpa" if _before_ampere(run) else _FLASH
    return kind("separate-samples").to(f"Separate packed samples: {name}", attn_implementation=name)


def _before_ampere(run: RunSpec) -> bool:
    gpu = run.target.gpu
    return gpu is not None and gpu.capability is not None and gpu.capability < (8, 0)


def compile_model(run: RunSpec) -> Change | None:
    """Use torch.compile, which fuses operations."""
    return None if run.kernels.torch_compile else COMPILE.to(torch_compile=True)


def compiled(run: RunSpec) -> Change | None:
    """Use torch.compile where rows have one width: it compiles again for every other one."""
    return compile_model(run) if run.shapes.constant_shapes and run.kernels.attn_implementation == "sdpa" else None


def expandable_segments(run: RunSpec) -> Change | None:
    """Use expandable segments."""
    if EXPANDABLE in run.allocator.settings:
        return None
    return EXPANDABLE_SEGMENTS.to(allocator=EXPANDABLE)


def empty_cache_at_eval(run: RunSpec) -> Change | None:
    """Empty the cache before and after an evaluation."""
    return kind("empty-cache-at-eval").to(empty_cache_at_eval=True)


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
