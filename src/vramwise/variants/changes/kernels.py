"""Kernels of attention, compilation, and the allocator."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.allocator.variables import EXPANDABLE
from vramwise.facts.attention import flash_stops, same_attention, uses_flash_library
from vramwise.types import Change, RunSpec
from vramwise.variants.changes.base import kind

_FLASH = "flash_attention_2"
FUSED_ATTENTION = kind("fused-attention")
FLASH = kind("flash-attention")
EXPANDABLE_SEGMENTS = kind("expandable-segments")


def fused_attention(run: RunSpec) -> Change | None:
    """Attention that never writes out its scores."""
    if run.kernels.attn_implementation != "eager":
        return None
    return FUSED_ATTENTION.to(attn_implementation="sdpa")


def plain_attention(run: RunSpec) -> Change | None:
    """sdpa runs on every card and with every torch."""
    if run.kernels.attn_implementation == "sdpa":
        return None
    return kind("plain-attention").to(attn_implementation="sdpa")


def flash_attention(run: RunSpec) -> Change | None:
    """FlashAttention 2, on a card that has it."""
    if run.kernels.attn_implementation == _FLASH or _before_ampere(run) or flash_stops(run):
        return None
    return FLASH.to(attn_implementation=_FLASH)


def attentions(run: RunSpec) -> Iterator[Change]:
    """Other backends that compute the same: sdpa, and FlashAttention 2 where it is known to be installed.

    Eager is left, never chosen: it holds the scores and gains nothing. FlashAttention is neither taken up nor given up
    where it decides what type embeddings are trained in, nor where rows are packed, which it lays out in its own way.
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
    """A whole model on one card: some trainers keep its embeddings in fp32 under sdpa and eager alone."""
    return run.adapter.kind is None and run.sharding.kind in ("none", "ddp") and run.precision.weights_dtype != "fp32"


def packing_attention(run: RunSpec) -> str | None:
    """A backend for packed rows that computes the same as the present one: itself, where it keeps samples apart."""
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
    """A backend that knows where packed samples begin."""
    if run.shapes.samples_apart:
        return None
    name = "sdpa" if _before_ampere(run) else _FLASH
    return kind("separate-samples").to(f"Separate packed samples: {name}", attn_implementation=name)


def _before_ampere(run: RunSpec) -> bool:
    gpu = run.target.gpu
    return gpu is not None and gpu.capability is not None and gpu.capability < (8, 0)


def compile_model(run: RunSpec) -> Change | None:
    """torch.compile fuses neighbours."""
    return None if run.kernels.torch_compile else kind("compile-model").to(torch_compile=True)


def expandable_segments(run: RunSpec) -> Change | None:
    """Segments that grow."""
    if EXPANDABLE in run.allocator.settings:
        return None
    return EXPANDABLE_SEGMENTS.to(allocator=EXPANDABLE)


def empty_cache_at_eval(run: RunSpec) -> Change | None:
    """The cache is emptied before an evaluation and after it."""
    return kind("empty-cache-at-eval").to(empty_cache_at_eval=True)
