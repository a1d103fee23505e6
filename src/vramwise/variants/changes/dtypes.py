"""Changes of number formats."""

from __future__ import annotations

from vramwise.types import Change, RunSpec
from vramwise.variants.changes.base import kind

BF16_BASE = kind("load-in-bf16")


def train_in_bf16(run: RunSpec) -> Change | None:
    """Train in bf16, which needs no gradient scaler."""
    gpu = run.target.gpu
    if run.precision.compute == "bf16" or (gpu is not None and gpu.known and not gpu.bf16):
        return None
    return kind("train-in-bf16").to(precision="bf16")


def let_card_choose(run: RunSpec) -> Change | None:
    """Let the trainer choose the precision by the card, so that one file works on every card."""
    if run.precision.precision_by_card and run.precision.compute == run.precision.weights_dtype:
        return None
    return kind("let-card-choose").to(precision_by_card=True)


def train_without_bf16(run: RunSpec) -> Change | None:
    """For cards before Ampere: fp16 with an adapter, otherwise fp32, because full fine-tuning in fp16 fails."""
    if run.adapter.kind:
        return kind("train-without-bf16").to(precision="fp16", tf32=False)
    title = "Train in fp32 on this card (fp16 needs an adapter)"
    return kind("train-without-bf16").to(title, precision="fp32", tf32=False)


def pad_for_fp8(run: RunSpec) -> Change | None:
    """Pad token counts to a multiple of 64, which is also one of 16 and 32."""
    return kind("pad-for-fp8").to(pad_to_sequence_len=True, pad_multiple=64)


def load_in_bf16(run: RunSpec) -> Change | None:
    """Store weights in the dtype of the matrix products; trained weights lose their fp32 copies."""
    if run.adapter.kind is not None:
        return bf16_base(run)
    return kind("bf16-weights").to(weights_dtype="bf16") if _wide(run) else None


def bf16_base(run: RunSpec) -> Change | None:
    """Store a frozen fp32 base in bf16 if the run computes in bf16."""
    return BF16_BASE.to(weights_dtype="bf16") if run.adapter.kind is not None and _wide(run) else None


def _wide(run: RunSpec) -> bool:
    gpu = run.target.gpu
    takes = gpu is None or not gpu.known or gpu.bf16
    # if another key made them fp32, that key has to change instead
    return (
        run.precision.weights_dtype == "fp32" and run.precision.compute == "bf16" and run.precision.autocast and takes
    )
