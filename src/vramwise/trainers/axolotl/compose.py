"""Builds an Axolotl config from a few options."""

from __future__ import annotations

from typing import Any

from vramwise.trainers.axolotl.plugins import LIGER
from vramwise.trainers.wishes import Wishes

# The rank of Axolotl's examples, and the usual ratio of alpha to rank.
_RANK, _ALPHA_PER_RANK = 16, 2
_KEYS = {
    "sequence_len": "sequence_len",
    "packing": "sample_packing",
    "micro_batch": "micro_batch_size",
    "accumulation": "gradient_accumulation_steps",
    "optimizer": "optimizer",
    "checkpointing": "gradient_checkpointing",
    "attention": "attn_implementation",
}


def compose(wishes: Wishes) -> dict[str, Any]:
    """Return the config's values, in reading order."""
    values: dict[str, Any] = {"base_model": wishes.model, **_adapter(wishes)}
    for wish, key in _KEYS.items():
        if (value := getattr(wishes, wish)) is not None:
            values[key] = value
    if wishes.fused_loss:
        values |= {"plugins": [LIGER], "liger_fused_linear_cross_entropy": True}
    if wishes.eval_batch is not None:
        values |= {"val_set_size": 0.05, "evals_per_epoch": 4, "eval_batch_size": wishes.eval_batch}
    return values


def _adapter(wishes: Wishes) -> dict[str, Any]:
    if wishes.adapter is None:
        return {}
    rank = wishes.rank or _RANK
    base = {"load_in_4bit": True} if wishes.adapter == "qlora" else {}
    lora = {"lora_r": rank, "lora_alpha": _ALPHA_PER_RANK * rank, "lora_target_linear": True}
    return {"adapter": wishes.adapter, **base, **lora}
