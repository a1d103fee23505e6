"""Resolves Unsloth's own kernels: which models get them, and for which layers' LoRA."""

from __future__ import annotations

from vramwise.trainers.arguments import Arguments
from vramwise.trainers.unsloth.keys import since
from vramwise.types import Stack, Target

# `FastLanguageModel` has its own forward pass for the model types in FAST (loader.py, `dispatch_model`); others use
# FastModel, which compiles transformers' modules.
_VARLEN = (2, 12)  # the torch version since which its kernel supports grouped heads
FAST = ("llama", "mistral", "qwen2", "qwen3", "gemma")
LORA = ("mlp", "qkv", "o")


def resolve_kernels(args: Arguments, target: Target, kind: str) -> None:
    """Fill fused_layers, packed_attention, fused_lora and loss_kernel. Needs the method and the objective."""
    reason = _slow(args)
    _attention(args, target)
    args.derive("fused_layers", () if reason else FAST, reason or "FastLanguageModel's own layers")
    compiled = since(target.stack, 2025, 3)
    why = "FastModel compiles the layers of other models" if compiled else "before 2025.3 nothing is compiled"
    args.derive("compiled_layers", compiled, why)
    apart = not since(target.stack, 2025)
    args.derive("tables_each_layer", apart, "before 2025" if apart else "all layers share one pair of tables")
    fused = args.values["adapter"] is not None and not reason and not args.values["use_dora"]
    why = reason or ("LoRA in Unsloth's own kernels" if fused else "no LoRA that they take")
    args.derive("fused_lora", LORA if fused else (), why)
    args.derive("lora_kernels", fused, why)
    args.derive("fused_lora_in_place", fused, why)
    if kind == "sft":
        kernel, why = _loss(target.stack)
        if _assumed(target.stack, "unsloth"):
            version = target.stack.releases["unsloth"].version
            args.fields.assume("loss_kernel", kernel, f"Unsloth {version} is assumed; older ones hold more logits")
        else:
            args.derive("loss_kernel", kernel, why)


def _assumed(stack: Stack, package: str) -> bool:
    """Return whether neither the file nor the user states the package's version."""
    release = stack.releases.get(package)
    return release is not None and release.origin.kind == "assumed"


def _loss(stack: Stack) -> tuple[str, str]:
    """Return the loss kernel of the release, and why."""
    # The loss is unsloth_zoo's, which is released apart: fused_losses/fused_linear.py is new in 2026.10.9.
    if (stack.parts("unsloth-zoo") or stack.parts("unsloth")) >= (2026, 10, 9):
        return "rows", "head and loss some rows at a time: logits are never all held"
    if since(stack, 2025, 9):
        return "room", "head and loss in chunks that half of the free memory holds"
    if since(stack, 2024, 11):
        return "cut", "cut cross entropy, before Unsloth 2025.9"
    return "in_place", "before Unsloth 2024.11 logits are held whole, and become their own gradient"


def _attention(args: Arguments, target: Target) -> None:
    """Fill packed_attention; it is assumed where it depends on xformers, and nobody says whether that is installed.

    FlashAttention if it is installed, else torch's own kernel from 2.12 and Ampere on, else xformers, else sample by
    sample.
    """
    ampere = target.gpu is None or target.gpu.capability is None or target.gpu.capability >= (8, 0)
    releases = target.stack.releases
    if ampere and ("flash-attn" in releases or target.torch >= _VARLEN):
        args.derive("packed_attention", "varlen", "a variable-length kernel that takes grouped heads")
    elif _assumed(target.stack, "xformers"):
        other = "FlashAttention takes less" if ampere else "without it samples are calls of their own"
        args.fields.assume("packed_attention", "repeated", f"xformers is assumed to be installed; {other}")
    elif target.stack.parts("xformers") > (0,):  # "0" on the command line: not installed
        args.derive("packed_attention", "repeated", "xformers, which wants heads repeated")
    else:
        args.derive("packed_attention", "segments", "neither xformers nor FlashAttention, and torch is older than 2.12")


def _slow(args: Arguments) -> str:
    """Return why a training does not use the fast path; empty if it does."""
    if args.value("full_finetuning"):
        return "full_finetuning goes through FastModel, which compiles transformers' modules"
    if args.values["quantization"] == "8bit":
        return "load_in_8bit goes through FastModel, which compiles transformers' modules"
    if args.fields.config.get("fast_model"):
        return "FastModel and FastVisionModel compile transformers' modules"
    if args.values["weights_dtype"] == "fp32":
        return "the kernels want weights of 16 bits"
    return ""
