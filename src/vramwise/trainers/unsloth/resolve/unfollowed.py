"""Features of a run that no prediction includes; they are reported with the figures."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.models.names import MORE_WEIGHTS
from vramwise.trainers.arguments import Arguments
from vramwise.trainers.unsloth.keys import since, wide_checkpoint
from vramwise.trainers.unsloth.resolve.loading import follows_embedding
from vramwise.trainers.unsloth.resolve.precision import forced_to_fp32, without_autocast
from vramwise.types import Target, Unfollowed

_TRACED = (2, 11)  # the torch version since which Unsloth's own layers are compiled too, except for flattened rows


def resolve_unfollowed(args: Arguments, target: Target, kind: str) -> None:
    """Fill fused_lora_traced and unfollowed. Needs everything else."""
    traced = _compiled(args, target)
    args.derive("fused_lora_traced", traced, "padded rows go through compiled layers" if traced else "not compiled")
    found = tuple(_found(args, target, kind))
    why = "; ".join(f"{one.name}: {one.why}" for one in found) or "nothing that is known of"
    args.derive("unfollowed", found, why)


def _found(args: Arguments, target: Target, kind: str) -> Iterator[Unfollowed]:
    checkpoint = None if args.value("use_exact_model_name") else wide_checkpoint(args.values["base_model"])
    if args.values["quantization"] == "4bit" and checkpoint and since(target.stack, 2024, 12):
        why = f"{checkpoint} is loaded instead, which leaves some layers in 16 bits (a fifth more was seen)"
        yield Unfollowed(name="dynamic 4-bit checkpoint", less=False, why=why, more_weights=MORE_WEIGHTS)
    if forced_to_fp32(args, target):
        why = "Unsloth runs parts of this model in float32 where the card has no bfloat16; they are counted in 16 bits"
        yield Unfollowed(name="float32 instead of float16", less=False, why=why, more_rest=1.0)
    if without_autocast(args, target):
        why = "without mixed precision, what adapters touch may be in float32; it is counted in 16 bits"
        yield Unfollowed(name="no autocast", less=False, why=why, more_rest=1.0)
    script = args.fields.config.document.script
    if args.value("fast_inference"):
        share = args.value("gpu_memory_utilization")
        why = f"vLLM runs in the same process and takes {share} of the card, shared with the weights"
        yield Unfollowed(name="fast_inference", less=False, why=why)
    if args.value("offload_embedding") is True and not follows_embedding(args, target):
        yield Unfollowed(name="offload_embedding", less=True, why="the input embedding is counted on the card")
    if args.value("offload_layers"):
        yield Unfollowed(name="offload_layers", less=True, why="layers in host memory are counted on the card")
    if args.value("unsloth_tiled_mlp"):
        yield Unfollowed(name="unsloth_tiled_mlp", less=True, why="feed-forward layers are counted whole")
    if args.value("load_in_fp8"):
        yield Unfollowed(name="load_in_fp8", less=True, why="weights in fp8 are counted in 16 bits")
    if args.value("qat_scheme"):
        yield Unfollowed(name="qat_scheme", less=False, why="fake quantisation makes copies of weights")
    if script is not None and "vision" in script.facts:
        yield Unfollowed(name="vision", less=False, why="patches of images are not counted")
    if kind in ("grpo", "rloo"):
        why = "Unsloth's own loss and generation are predicted as TRL's"
        yield Unfollowed(name=kind, less=False, why=why)
    elif kind != "sft":
        why = "the loss of preferences is predicted as TRL's; Unsloth's takes log-probabilities in chunks"
        yield Unfollowed(name=kind, less=False, why=why)


def _compiled(args: Arguments, target: Target) -> bool:
    """Return whether Unsloth's own layers are compiled (models/_block_compile.py, new in 2026.10.6)."""
    own = bool(args.values["fused_layers"]) and args.values["adapter"] is not None
    flat = args.values["packing_rows"] != "none"
    return own and not flat and target.torch >= _TRACED and since(target.stack, 2026, 10, 6)
