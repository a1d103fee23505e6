"""Fields for what none of these trainers has, and for what transformers' version alone decides."""

from __future__ import annotations

from typing import Any

from vramwise.trainers.arguments.values import Arguments
from vramwise.trainers.experts import expert_masks
from vramwise.types import Target

_NOTHING: dict[str, Any] = {
    "lora_kernels": False,
    "fused_lora": (),
    "fused_lora_wide_grads": False,
    "linear_targets_by_name": False,
    "layer_offloading": False,
    "tiled_mlp": False,
    "tiled_mlp_pieces": None,
    "varlen_sdpa": False,
    "expert_quantization": None,
    "upcasts_at_load": (),
    "resets_load_peaks": False,
    "loss_chunks": 8,
    "spare_model": False,
    "empties_cache_each_step": False,
    "unfrozen": (),
    "trained_blocks": None,
    "packed_mask": "built",
    "packing_fill": "full",
    "packed_together": 1000,
    "labels_on": "all",
    "unfollowed": (),
    "upcasts_stay": False,
    "trains_in_fp32": False,
    "refuses_fp8_below": None,
    "added_tokens": 0,
}


def resolve_absent(args: Arguments, target: Target) -> None:
    """Fills every field above that is not filled yet, expert_masks and rotary_by_product. To be called last."""
    for name, value in _NOTHING.items():
        if name not in args.values:
            args.derive(name, value, "the trainer has nothing of the kind")
    args.derive("expert_masks", *expert_masks(target.stack))
    by_product = (0,) < target.stack.parts("transformers") < (5, 19)
    why = "transformers up to 5.18 multiplies matrices for them" if by_product else "transformers since 5.19 does not"
    args.derive("rotary_by_product", by_product, why)
