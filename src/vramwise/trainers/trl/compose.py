"""Builds a config for `trl sft` from a few options."""

from __future__ import annotations

from typing import Any

from vramwise.trainers.wishes import Wishes

_ALPHA_PER_RANK = 2
# A placeholder: TRL needs a dataset, and a file without one is hard to recognise as TRL's.
_DATASET = "your/dataset"
_KEYS = {
    "sequence_len": "max_length",
    "micro_batch": "per_device_train_batch_size",
    "accumulation": "gradient_accumulation_steps",
    "optimizer": "optim",
    "checkpointing": "gradient_checkpointing",
    "attention": "attn_implementation",
}


def compose(wishes: Wishes) -> dict[str, Any]:
    """Return the config's values, in reading order. The loss is always fused."""
    values: dict[str, Any] = {"model_name_or_path": wishes.model, "dataset_name": _DATASET, **_adapter(wishes)}
    # off by default, but written, because this key identifies a file for supervised fine-tuning
    values["packing"] = bool(wishes.packing)
    for wish, key in _KEYS.items():
        if (value := getattr(wishes, wish)) is not None:
            values[key] = value
    if wishes.eval_batch is not None:
        values |= {"eval_strategy": "steps", "eval_steps": 200, "per_device_eval_batch_size": wishes.eval_batch}
    return values | {"output_dir": "out"}


def _adapter(wishes: Wishes) -> dict[str, Any]:
    if wishes.adapter is None:
        return {}
    base = {"load_in_4bit": True} if wishes.adapter == "qlora" else {}
    rank = wishes.rank
    lora = {} if rank is None else {"lora_r": rank, "lora_alpha": _ALPHA_PER_RANK * rank}
    return {"use_peft": True, **base, **lora, "lora_target_modules": "all-linear"}
