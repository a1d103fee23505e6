"""Kernels of the loss and of attention, and the allocator."""

from __future__ import annotations

from vramwise.allocator.variables import EXPANDABLE
from vramwise.types import Change, RunSpec
from vramwise.variants.changes.base import change

_FLASH = "flash_attention_2"
_OTHER_KERNEL = "the same attention in another kernel: rounding alone differs"


def fuse_loss(run: RunSpec) -> Change | None:
    """A loss that never holds tokens × vocabulary."""
    if run.loss_kernel not in ("stock", "chunked", "liger") or run.rl:
        return None
    return change(
        "fuse-loss",
        "rounding",
        "Compute the loss without holding the logits: Liger's fused linear cross entropy",
        "the same loss from the same hidden states, in chunks: rounding alone differs",
        loss_kernel="liger_fused_linear",
    )


def fused_attention(run: RunSpec) -> Change | None:
    """Attention that never writes out its scores."""
    if run.attn_implementation != "eager":
        return None
    return _sdpa("fused-attention", "Use an attention that never writes out its scores: sdpa")


def plain_attention(run: RunSpec) -> Change | None:
    """sdpa runs on every card and with every torch."""
    return None if run.attn_implementation == "sdpa" else _sdpa("plain-attention", "Use sdpa, which runs on every card")


def _sdpa(name: str, title: str) -> Change:
    return change(name, "rounding", title, _OTHER_KERNEL, attn_implementation="sdpa")


def flash_attention(run: RunSpec) -> Change | None:
    """FlashAttention 2, on a card that has it."""
    if run.attn_implementation == _FLASH or _before_ampere(run):
        return None
    return change("flash-attention", "rounding", f"Attend with {_FLASH}", _OTHER_KERNEL, attn_implementation=_FLASH)


def separate_samples(run: RunSpec) -> Change | None:
    """A backend that knows where packed samples begin."""
    if run.samples_apart:
        return None
    name = "sdpa" if _before_ampere(run) else _FLASH
    why = "packed samples no longer see one another: the model learns from other contexts"
    return change("separate-samples", "changes", f"Attend with {name}", why, attn_implementation=name)


def _before_ampere(run: RunSpec) -> bool:
    gpu = run.target.gpu
    return gpu is not None and gpu.capability is not None and gpu.capability < (8, 0)


def compile_model(run: RunSpec) -> Change | None:
    """torch.compile fuses neighbours."""
    if run.torch_compile:
        return None
    why = "the same operations, fused: rounding alone differs, and compiling takes time"
    return change("compile-model", "rounding", "Compile the model", why, torch_compile=True)


def expandable_segments(run: RunSpec) -> Change | None:
    """Segments that grow."""
    if EXPANDABLE in run.allocator:
        return None
    why = "where bytes lie changes no number"
    return change("expandable-segments", "same", "Let segments grow: expandable segments", why, allocator=EXPANDABLE)


def empty_cache_at_eval(run: RunSpec) -> Change | None:
    """The cache is emptied before an evaluation and after it."""
    why = "where bytes lie changes no number"
    title = "Empty the cache around each evaluation"
    return change("empty-cache-at-eval", "same", title, why, empty_cache_at_eval=True)
