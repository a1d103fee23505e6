"""fp16-full-finetune"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.facts.attention import uses_flash_library
from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes

_UNSCALE = "`Attempting to unscale FP16 gradients`"
_MISMATCH = "`expected mat1 and mat2 to have the same dtype`"
_NO_KERNEL = "`_amp_foreach_non_finite_check_and_unscale_cuda not implemented for 'BFloat16'`"
# DeepSpeed scales the loss itself; FSDP1 has its own scaler that accepts fp16 gradients.
_PLAIN_SCALER = ("none", "ddp", "fsdp2")


@rule(
    id="fp16-full-finetune",
    explains={"fp16-trainable-weights", "mixed-operands"},
    severity=Severity.ERROR,
    also=(Severity.WARNING,),
    topic="precision",
    bad="base_model: meta-llama/Llama-3.2-1B\nfp16: true\nsample_packing: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nbf16: auto\nsample_packing: true\n",
    beyond_trainer=(
        "The trainer warns only if bf16 is set to false, packing is on and flash attention is not used; torch's "
        "scaler rejects fp16 gradients with or without packing (verified by running it)."
    ),
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """fp16 trains weights of 16 bits, which the gradient scaler rejects.

    With `fp16: true` and no adapter, the weights are loaded and trained in fp16, so their gradients are fp16 too.
    Mixed precision in fp16 needs the gradient scaler, and torch's scaler does not accept fp16 gradients: the first
    optimizer step stops with `Attempting to unscale FP16 gradients`. fp16 without autocast has no scaler, but under
    sdpa or eager attention embeddings and norms stay in fp32 while linear layers are fp16, and the first forward pass
    stops with `expected mat1 and mat2 to have the same dtype`. The trainer itself warns only of packing without flash
    attention, and only if bf16 is set to false.

    Weights in bf16 are no better: `fp16: true` scales their gradients, and the scaler has no kernel for bf16. The same
    goes for adapters in the type of a base of 16 bits, and for copies of modules that are trained whole beside them.
    If the type is only assumed (that of the checkpoint), the finding is a warning.

    A trainer that lets the card choose uses fp16 on a card without bf16, with the same result; torch counts emulated
    bf16 as support, so the trainer may run emulated bf16 there instead, which works but is very slow.

    Use bf16 on a card that supports it, or a LoRA adapter (adapters stay in fp32, which the scaler accepts). Flash
    attention casts the fp32 embeddings back, which fixes only the second error.
    """
    trained = trained_half(run)
    if trained is None or run.precision.compute != "fp16" or not _plain_scaler(run):
        return
    message = _message(run, trained)
    if message is None:
        return
    by_card = run.precision.autocast and run.precision.precision_by_card
    unsure = by_card or run.origins["weights_dtype"].kind == "assumed"
    yield Hit(
        field="precision",
        message=message,
        change=None if by_card else changes.train_in_bf16(run),
        severity=Severity.WARNING if unsure else Severity.ERROR,
    )


def trained_half(run: RunSpec) -> str | None:
    """Return the dtype of trained weights if it is one of 16 bits."""
    if run.precision.weights_dtype == "fp32" or run.loading.trains_in_fp32:
        return None
    adapter, prepared = run.adapter, run.loading.quantised_base_prepared == "all"
    saved = adapter.lora_modules_to_save and not run.precision.fp32_embeddings and not prepared
    if adapter.kind is None or adapter.adapters_as_base or (saved and not adapter.half_adapters):
        return run.precision.weights_dtype
    return None


def _plain_scaler(run: RunSpec) -> bool:
    """Return whether torch's own scaler meets these weights: accelerate's FSDP 2 casts trained ones to fp32."""
    cast = run.sharding.kind == "fsdp2" and run.sharding.fsdp_widens != "nothing"
    return run.sharding.kind in _PLAIN_SCALER and not cast


def _message(run: RunSpec, trained: str) -> str | None:
    if not run.precision.autocast:
        full = run.precision.fp32_embeddings and trained == "fp16" and run.adapter.kind is None
        return _without_scaler(run) if full else None
    if trained == "bf16" or run.adapter.kind is not None:
        return _wrong_type(run, trained)
    if not run.precision.precision_by_card:
        return _under_scaler(run)
    return _from_card(run) if run.base_model else None


def _wrong_type(run: RunSpec, trained: str) -> str:
    parts = "the weights" if run.adapter.kind is None else "the adapter's trained weights"
    stop = _UNSCALE if trained == "fp16" else _NO_KERNEL
    assumed = run.origins["weights_dtype"].kind == "assumed"
    known = f"{parts} are {'probably ' if assumed else ''}{trained}"
    return (
        f"{_key(run)}: true scales gradients, and {known}: the first step stops with {stop}; use bf16: true, or load "
        "the weights in fp32"
    )


def _key(run: RunSpec) -> str:
    return run.origins["precision"].key or run.keys["precision"]


def _under_scaler(run: RunSpec) -> str:
    attention = run.kernels.attn_implementation
    if run.shapes.sample_packing and not uses_flash_library(attention):
        return (
            f"fp16 full fine-tune with {run.keys['sample_packing']} under {attention}, no flash attention: it stops "
            f"with {_UNSCALE} or {_MISMATCH}; use bf16 or a LoRA adapter (flash attention avoids only the second)"
        )
    return (
        f"{_key(run)}: true without an adapter trains fp16 weights with the gradient scaler: the first step stops "
        f"with {_UNSCALE} (or {_MISMATCH}); use bf16 or a LoRA adapter"
    )


def _without_scaler(run: RunSpec) -> str:
    return (
        f"{_key(run)}: true in a full fine-tune under {run.kernels.attn_implementation} leaves embeddings and norms "
        f"in fp32 while linear layers are fp16: the first forward pass stops with {_MISMATCH}; use bf16, a LoRA "
        "adapter or "
        "flash attention"
    )


def _from_card(run: RunSpec) -> str:
    card = run.target.gpu.name if run.target.gpu else "this card"
    return (
        f"{run.keys['precision']}: auto means fp16 on {card}, and a full fine-tune in fp16 stops with "
        f"{_UNSCALE} (or {_MISMATCH}); torch also counts emulated bf16, so {run.trainer_title} may use that instead, "
        "which is very slow; use a LoRA adapter or a card with bf16"
    )
