"""Number formats."""

from __future__ import annotations

from vramwise.types import Change, RunSpec
from vramwise.variants.changes.base import Kind, change

BF16_BASE = Kind(
    "load-in-bf16",
    "rounding",
    "Load the frozen base in bf16",
    "the base is multiplied in bf16 either way; only what passes between layers is rounded more",
)


def train_in_bf16(run: RunSpec) -> Change | None:
    """bf16 needs no scaler."""
    gpu = run.target.gpu
    if run.precision.compute == "bf16" or (gpu is not None and gpu.known and not gpu.bf16):
        return None
    return change("train-in-bf16", "changes", "Train in bf16", "another number format", precision="bf16")


def let_card_choose(run: RunSpec) -> Change | None:
    """One file for every card."""
    if run.precision.precision_by_card and run.precision.compute == run.precision.weights_dtype:
        return None
    title = "Let the card decide: bf16 where it has it, else fp16"
    return change("let-card-choose", "changes", title, "another number format", precision_by_card=True)


def train_without_bf16(run: RunSpec) -> Change | None:
    """For cards before Ampere: fp16 with an adapter, whose weights are fp32; a full fine-tune in fp16 fails, too."""
    title = "Use fp16 on this card" if run.adapter.kind else "Train in fp32 on this card (fp16 needs an adapter)"
    precision = "fp16" if run.adapter.kind else "fp32"
    return change("train-without-bf16", "changes", title, "another number format", precision=precision, tf32=False)


def pad_for_fp8(run: RunSpec) -> Change | None:
    """Token counts that divide by 64 divide by 16 and 32 too."""
    return change(
        "pad-for-fp8",
        "changes",
        "Pad to token counts that divide",
        "fp8 kernels take rows of a multiple of 16 alone",
        pad_to_sequence_len=True,
        pad_multiple=64,
    )


def load_in_bf16(run: RunSpec) -> Change | None:
    """Weights in the type that products are made in anyway; trained ones would lose their fp32 masters."""
    if run.adapter.kind is not None:
        return bf16_base(run)
    if not _wide(run):
        return None
    why = "the optimizer updates bf16 weights, not fp32 ones: small updates are lost to rounding"
    return change("bf16-weights", "changes", "Load and train the weights in bf16", why, weights_dtype="bf16")


def bf16_base(run: RunSpec) -> Change | None:
    """A frozen base that is fp32 while the run computes in bf16."""
    return BF16_BASE.to(weights_dtype="bf16") if run.adapter.kind is not None and _wide(run) else None


def _wide(run: RunSpec) -> bool:
    gpu = run.target.gpu
    takes = gpu is None or not gpu.known or gpu.bf16
    # where another key made them fp32, that is the one to change
    return (
        run.precision.weights_dtype == "fp32" and run.precision.compute == "bf16" and run.precision.autocast and takes
    )
