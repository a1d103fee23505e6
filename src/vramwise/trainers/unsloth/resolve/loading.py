"""Resolves how weights are loaded: directly onto the card, in the requested width."""

from __future__ import annotations

from vramwise.trainers.arguments import Arguments
from vramwise.trainers.unsloth.keys import since
from vramwise.trainers.unsloth.resolve.adapter import bits_of
from vramwise.trainers.unsloth.resolve.precision import forced_to_fp32
from vramwise.types import Target

_TOKENS = 2048  # taken where max_seq_length is None


def resolve_loading(args: Arguments, target: Target) -> None:
    """Fill quantization and related settings. Needs the method."""
    bits = bits_of(args)
    key = f"load_in_{bits}" if bits else "load_in_16bit" if args.value("load_in_16bit") else "load_in_4bit"
    args.derive("quantization", bits, f"{key} is on" if bits else "the base is not quantised", key=key)
    _warm_up(args, target, bits)
    _experts(args, target, bits)
    _embedding(args, target)
    args.derive("nested_scales", True, "Unsloth quantises the scales too")
    args.derive("int8_outliers", bits == "8bit", "LLM.int8 sets values of 6 and more apart")
    args.derive("quantised_base_prepared", "no", "Unsloth casts adapters alone")
    args.derive("multiplies_first", True, "measured: the workspace is there before the first weight")
    args.derive("loads_through", "device", "read straight onto the card")
    full = args.values["adapter"] is None
    narrow = full and args.values["weights_dtype"] != "fp32"
    args.derive("upcasts_at_load", ("norm",) if narrow else (), "norms that are trained are kept in fp32")
    args.derive("upcasts_stay", True, "nothing is cast back")
    copied = forced_to_fp32(args, target) and not since(target.stack, 2026, 10)
    args.derive("copies_to_half", copied, "read in bfloat16, then cast" if copied else "nothing is cast whole")


def follows_embedding(args: Arguments, target: Target) -> bool:
    """Return whether it is counted that embeddings go to host memory: never those of a full fine-tune."""
    return since(target.stack, 2026, 10) and args.values["adapter"] is not None


def _embedding(args: Arguments, target: Target) -> None:
    """Fill embedding_leaves_below (`offload_embedding_if_tight`): "auto" moves them if free memory is short."""
    key, tokens = "offload_embedding", args.value("max_seq_length")
    asked = args.value(key) if args.written(key) else "auto"
    alone = target.gpus == 1
    if not alone or not follows_embedding(args, target) or asked not in (True, "auto") or args.value("fast_inference"):
        args.derive("embedding_leaves_below", None, "embeddings stay on the card", key=key)
    elif asked is True:
        args.derive("embedding_leaves_below", 0, "embeddings that no head shares go to host memory", key=key)
    else:
        tokens = tokens if isinstance(tokens, int) and tokens > 0 else _TOKENS
        why = f"they go to host memory if free memory is short of what Unsloth sets aside for {tokens:,} tokens"
        args.derive("embedding_leaves_below", tokens, why, key=key)


def _warm_up(args: Arguments, target: Target, bits: str | None) -> None:
    """Fill what transformers allocates before it reads weights; Unsloth has used 4.50 and later since April 2025."""
    halves = bits is not None and since(target.stack, 2025, 4) and target.stack.parts("transformers") < (5,)
    why = "transformers 4.50 to 4.57" if halves else "measured: nothing is asked for ahead of a quantised base"
    args.derive("warms_up", bits is None or halves, why)
    args.derive("halves_warm_up", halves, why)


def _experts(args: Arguments, target: Target, bits: str | None) -> None:
    """Fill expert_quantization: 3-D expert weights are quantised since 2026.10; those of GPT-OSS always were."""
    quantised = bits == "4bit" and (
        since(target.stack, 2026, 10) or "gpt-oss" in str(args.values["base_model"]).lower()
    )
    why = "experts are quantised as the rest is" if quantised else "experts stay in the weights' type"
    args.derive("expert_quantization", "4bit" if quantised else None, why, key="load_in_4bit")
