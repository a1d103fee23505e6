"""Changes of number formats."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.types import Change, RunSpec
from vramwise.variants.changes.base import kind

BF16_BASE = kind("load-in-bf16")
BF16_WEIGHTS = kind("bf16-weights")


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
    return BF16_WEIGHTS.to(weights_dtype="bf16") if _wide(run) else None


def bf16_weights(run: RunSpec) -> Iterator[Change]:
    """Yield weights, gradients and optimizer states in bf16 for a full fine-tune that keeps them in fp32."""
    if run.adapter.kind is not None or run.loading.quantization or run.sharding.kind not in ("none", "ddp"):
        return
    if run.loading.trains_in_fp32 and run.precision.compute == "bf16" and _takes_bf16(run):
        key = run.keys.get("trains_in_fp32")
        yield BF16_WEIGHTS.to(f"{BF16_WEIGHTS.what}{f': {key}' if key else ''}", trains_in_fp32=False)
    elif _wide(run):
        yield BF16_WEIGHTS.to(weights_dtype="bf16")


def bf16_base(run: RunSpec) -> Change | None:
    """Store a frozen fp32 base in bf16 if the run computes in bf16."""
    return BF16_BASE.to(weights_dtype="bf16") if run.adapter.kind is not None and _wide(run) else None


def _wide(run: RunSpec) -> bool:
    # if another key made them fp32, that key has to change instead
    wide = run.precision.weights_dtype == "fp32" and run.precision.compute == "bf16" and run.precision.autocast
    return wide and _takes_bf16(run)


def _takes_bf16(run: RunSpec) -> bool:
    gpu = run.target.gpu
    return gpu is None or not gpu.known or gpu.bf16
