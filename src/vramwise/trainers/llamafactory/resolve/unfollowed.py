"""What a run does that no prediction follows: said with its figures, never passed over."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.trainers.arguments import Arguments
from vramwise.trainers.installed import unfollowed_experts
from vramwise.trainers.llamafactory.resolve.adapter import block_by_block, projects
from vramwise.types import Stack, Unfollowed

# Key that is on → name, whether the run as predicted takes at least as much, and why.
_SWITCHES = {
    "use_galore": ("GaLore", True, "its states are counted like AdamW's but are smaller"),
    "use_apollo": ("APOLLO", True, "its states are counted like AdamW's but are smaller"),
    "use_badam": ("BAdam", True, "it has states for a share of each weight; AdamW's are counted"),
    "use_adam_mini": ("Adam-mini", True, "it shares second moments; AdamW's are counted"),
    "use_unsloth": ("Unsloth", True, "its kernels and checkpointing hold less; transformers' are counted"),
    "use_kt": ("KTransformers", True, "experts stay in host memory but are counted on the card"),
    "shift_attn": ("shift_attn", False, "attention in shifted groups copies heads"),
    "mixture_of_depths": ("mixture_of_depths", False, "routers decide how many tokens pass a block"),
    "use_asft_loss": ("use_asft_loss", False, "the base is loaded a second time and its logits are held"),
    "use_hyper_parallel": ("HyperParallel", False, "how it shards the model is unknown"),
    "moe_aux_loss_coef": ("moe_aux_loss_coef", False, "router logits of all layers are kept"),
}
_OTHER_BASES = ("hqq", "eetq", "quanto")


def resolve_unfollowed(args: Arguments, media_templates: frozenset[str], stack: Stack) -> None:
    """Fills unfollowed. Needs everything else."""
    found = (*_found(args, media_templates), *unfollowed_experts(args.values, stack))
    why = "; ".join(f"{one.name}: {one.why}" for one in found) or "no known option"
    args.derive("unfollowed", found, why)


def _found(args: Arguments, media_templates: frozenset[str]) -> Iterator[Unfollowed]:
    for key, (name, less, why) in _SWITCHES.items():
        if args.value(key) and not projects(args, key) and not (key == "use_badam" and block_by_block(args)):
            yield Unfollowed(name=name, less=less, why=why)
    if args.values["sharding"] == "fsdp1" and args.values["loads_through"] == "device":
        why = "each card loads the whole model before its shard; set low_cpu_mem_usage: false to load into host memory"
        yield Unfollowed(name="loading under FSDP", less=False, why=why)
    for key in ("galore_layerwise", "apollo_layerwise"):
        if args.value(key) and args.value(f"use_{key.removesuffix('_layerwise')}"):
            yield Unfollowed(name=key, less=True, why="gradients are freed layer by layer; all of them are counted")
    if args.value("finetuning_type") == "oft" and args.value("oft_rank"):
        yield Unfollowed(name="oft_rank", less=False, why="blocks are counted as 32 columns wide")
    if args.value("use_llama_pro") and args.value("finetuning_type") == "lora":
        yield Unfollowed(name="use_llama_pro", less=True, why="adapters are counted in all blocks, not only in some")
    if args.value("quantization_bit") is not None and args.value("quantization_method") in _OTHER_BASES:
        yield Unfollowed(name=str(args.value("quantization_method")), less=False, why="counted like bitsandbytes")
    if args.value("template") in media_templates:
        why = "patches of images, video and audio are not counted; even a batch of text gets a small image"
        yield Unfollowed(name="multimodal data", less=False, why=why)
