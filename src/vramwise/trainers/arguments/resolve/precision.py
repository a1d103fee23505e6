"""Resolves bf16 and fp16, the dtype of autocast. The trainer decides the dtype of the weights."""

from __future__ import annotations

from vramwise.trainers.arguments.values import Arguments

_MIXED = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}


def resolve_precision(args: Arguments, *, bf16_unless_fp16: bool = False, accelerate: str | None = None) -> str:
    """Fill precision, precision_by_card and autocast; return the precision.

    `bf16_unless_fp16`: unset means bf16 on every card, unless fp16 is on (TRL). `accelerate`: the mixed precision of
    accelerate's settings, used if the file sets neither.
    """
    precision, why, key = _precision(args, bf16_unless_fp16, accelerate)
    args.derive("precision_by_card", False, "the file decides, not the card", key=key)
    if key is not None and args.written(key):
        args.put("precision", key, precision)
    else:
        args.derive("precision", precision, why, key=key)
    args.fields.neutral("fp8_scaling")
    on = precision != "fp32"
    args.derive("autocast", on, "mixed precision: autocast around the model" if on else "no autocast", key=key)
    return precision


def _precision(args: Arguments, bf16_unless_fp16: bool, accelerate: str | None) -> tuple[str, str, str | None]:
    if args.value("fp16"):
        return "fp16", "fp16", "fp16"
    if args.value("bf16"):
        return "bf16", "bf16", "bf16"
    if bf16_unless_fp16 and args.value("bf16") is None:
        return "bf16", "unset: bf16 unless fp16 is on, on any card", "bf16"
    if accelerate in _MIXED:
        return _MIXED[accelerate], f"accelerate's mixed_precision {accelerate}", "bf16"
    return "fp32", "neither bf16 nor fp16", "bf16"
