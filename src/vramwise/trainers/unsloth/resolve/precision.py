"""Resolves dtypes: bfloat16 if the card supports it, else float16, for weights and products, unless `dtype` is set."""

from __future__ import annotations

from vramwise.trainers.arguments import Arguments
from vramwise.trainers.unsloth.keys import since
from vramwise.types import Target

# Models that Unsloth does not run in float16: the residual stream and attention run in fp32 instead. FORCE_FLOAT32 in
# loader.py of 2025.9.1, and in unsloth_zoo's model_lists.py, which has the others from 2026.7.1 on.
_FORCED = ("gemma-3", "functiongemma", "medgemma", "embeddinggemma", "gpt-oss")
_FORCED_SINCE_2026_7 = ("gemma-4", "qwen3.5", "qwen3-30b-a3b", "qwen3-235b-a22b", "qwen3-coder", "glm-4")
_MIXES_SINCE = (2025, 2, 15)
_TYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def resolve_dtypes(args: Arguments, target: Target) -> None:
    """Fill precision, precision_by_card, weights_dtype, autocast and fp32_embeddings."""
    dtype = _weights(args, target)
    full = bool(args.value("full_finetuning"))
    wide = full and (dtype == "fp16" or args.value("float32_mixed_precision") is True)
    if wide:
        why = "full fine-tuning in float16, or with float32_mixed_precision, keeps weights in fp32"
        args.derive("weights_dtype", "fp32", why, key="float32_mixed_precision")
    _compute(args, target, dtype)
    args.derive("fp32_embeddings", args.values["weights_dtype"] == "fp32", "embeddings have the weights' type")


def _weights(args: Arguments, target: Target) -> str:
    said = str(args.value("dtype")).removeprefix("torch.")
    gpu = target.gpu
    half = "bf16" if gpu is None or gpu.bf16 else "fp16"
    if said in _TYPES:
        name = _TYPES[said]
        if name == "bf16" and half == "fp16":
            why = "the card has no bfloat16: Unsloth changes it to float16"
            return str(args.derive("weights_dtype", "fp16", why, key="dtype"))
        return str(args.derive("weights_dtype", name, f"dtype is {said}", key="dtype"))
    args.fields.keys["weights_dtype"] = "dtype"
    if gpu is None:
        return str(args.fields.assume("weights_dtype", "bf16", "no card is named: one with bfloat16 assumed"))
    return str(args.derive("weights_dtype", half, f"dtype unset: what {gpu.name} has", key="dtype"))


def _compute(args: Arguments, target: Target, dtype: str) -> None:
    """Fill the precision: `bf16` and `fp16` must match the weights; if neither is on, the weights decide."""
    key = "fp16" if dtype == "fp16" else "bf16"
    compute = dtype if dtype != "fp32" else "bf16" if target.gpu is None or target.gpu.bf16 else "fp16"
    args.fields.neutral("fp8_scaling")
    by_card = not args.value("bf16") and not args.value("fp16")
    args.derive("precision_by_card", by_card, "unset: as the weights" if by_card else "the config says", key=key)
    args.derive("precision", compute, f"mixed precision in the weights' type, {compute}", key=key)
    on = not without_autocast(args, target)
    why = "mixed precision: autocast around the model" if on else "neither bf16 nor fp16, and Unsloth adds none"
    args.derive("autocast", on, why, key=key)


def without_autocast(args: Arguments, target: Target) -> bool:
    """Return whether nobody turns mixed precision on: Unsloth's trainers do so by themselves since 2025.2 (rl.py)."""
    return not (args.value("bf16") or args.value("fp16") or since(target.stack, *_MIXES_SINCE))


def forced_to_fp32(args: Arguments, target: Target) -> bool:
    """Return whether Unsloth does not run the model in float16 although the card has no bf16. Needs the dtypes."""
    named = str(args.values["base_model"]).lower()
    words = _FORCED + (_FORCED_SINCE_2026_7 if since(target.stack, 2026, 7) else ())
    return args.values["weights_dtype"] == "fp16" and any(word in named for word in words)
