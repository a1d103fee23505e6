"""Builds a config for `llamafactory-cli train` from a few options."""

from __future__ import annotations

from typing import Any

from vramwise.errors import VramwiseError
from vramwise.trainers.llamafactory.resolve.savings import ATTENTION
from vramwise.trainers.wishes import Wishes

# A placeholder: with `do_train`, LLaMA-Factory requires a dataset.
_DATASET = "your_dataset"
_KEYS = {
    "sequence_len": "cutoff_len",
    "micro_batch": "per_device_train_batch_size",
    "accumulation": "gradient_accumulation_steps",
    "optimizer": "optim",
}


def compose(wishes: Wishes) -> dict[str, Any]:
    """Return the config's values, in reading order.

    Each of LLaMA-Factory's examples sets `bf16`: without it there is no mixed precision at all.
    """
    values: dict[str, Any] = {"model_name_or_path": wishes.model, **_method(wishes), "dataset": _DATASET}
    for wish, key in _KEYS.items():
        if (value := getattr(wishes, wish)) is not None:
            values[key] = value
    return {**values, **_switches(wishes), "bf16": True, **_evaluation(wishes), "output_dir": "out"}


def _method(wishes: Wishes) -> dict[str, Any]:
    bits = {"quantization_bit": 4} if wishes.adapter == "qlora" else {}
    rank = {} if wishes.rank is None else {"lora_rank": wishes.rank}
    kind = "lora" if wishes.adapter else "full"
    return {**bits, "stage": "sft", "do_train": True, "finetuning_type": kind, **rank}


def _switches(wishes: Wishes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if wishes.packing is not None:
        found["packing"] = wishes.packing
    if wishes.packing:
        found["neat_packing"] = True  # as other trainers pack: no sample attends to those before it
    if wishes.checkpointing is not None:
        found["disable_gradient_checkpointing"] = not wishes.checkpointing
    if wishes.attention is not None:
        found["flash_attn"] = _attention(wishes.attention)
    if wishes.fused_loss:
        found["enable_liger_kernel"] = True
    return found


def _attention(wished: str) -> str:
    words = {backend: word for word, backend in ATTENTION.items()}
    if wished in words:
        return words[wished]
    if wished in ATTENTION:
        return wished
    raise VramwiseError(f"LLaMA-Factory has no attention '{wished}': choose one of {', '.join(words)}")


def _evaluation(wishes: Wishes) -> dict[str, Any]:
    if wishes.eval_batch is None:
        return {}
    schedule = {"val_size": 0.05, "eval_strategy": "steps", "eval_steps": 200}
    return {**schedule, "per_device_eval_batch_size": wishes.eval_batch}
