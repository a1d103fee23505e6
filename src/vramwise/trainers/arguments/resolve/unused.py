"""Fields for what none of these trainers has, and for what installed versions alone decide."""

from __future__ import annotations

from vramwise.trainers.arguments.values import Arguments
from vramwise.trainers.installed import resolve_installed
from vramwise.types import Target

# Settings that only a trainer with something of its own fills.
_ABSENT = (
    "lora_target_parameters",
    "packed_as_bytes",
    "lora_kernels",
    "fused_lora",
    "fused_lora_wide_grads",
    "fused_lora_in_place",
    "fused_lora_squared",
    "fused_lora_traced",
    "saved_pair_tied",
    "compiled_layers",
    "tables_each_layer",
    "fused_layers",
    "packed_attention",
    "linear_targets_by_name",
    "layer_offloading",
    "tiled_mlp",
    "tiled_mlp_pieces",
    "varlen_sdpa",
    "expert_quantization",
    "warms_up",
    "halves_warm_up",
    "copies_to_half",
    "multiplies_first",
    "embedding_leaves_below",
    "upcasts_at_load",
    "resets_load_peaks",
    "head_in_fp32",
    "loss_chunks",
    "reference_whole",
    "spare_model",
    "class_labels",
    "target_len",
    "empties_cache_each_step",
    "unfrozen",
    "trained_blocks",
    "packed_mask",
    "packing_fill",
    "packed_together",
    "labels_on",
    "unfollowed",
    "upcasts_stay",
    "trains_in_fp32",
    "refuses_fp8_below",
    "added_tokens",
)


def resolve_absent(args: Arguments, target: Target) -> None:
    """Fills every field above that is not filled yet, and those that versions decide. To be called last."""
    missing = [name for name in _ABSENT if name not in args.values]
    args.fields.neutral(*missing, why="the trainer has no such feature")
    resolve_installed(args.fields, target.stack)
