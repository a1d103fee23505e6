"""Edits of the training method: adapters, quantisation, the optimizer, precision."""

from __future__ import annotations

from typing import Any

from vramwise.rules.base import delete_key, insert_key, set_key
from vramwise.trainers.axolotl.resolve.lora_kernels import LINEAR_KERNELS, attention_unknown, model_refused
from vramwise.trainers.axolotl.spell.edits import by_key, put
from vramwise.trainers.spelling import Speller, tf32
from vramwise.types import Edit, RunSpec

_FP8 = ("fp8", "fp8_config", "fp8_enable_fsdp_float8_all_gather")
_FP8_TOKENS = 32
_QUANTISED_OTHERWISE = ("model_quantization_config", "nvfp4_merge_aware", "gptq")
# Settings of full fine-tuning that conflict with an adapter.
_WHOLE_MODEL_ONLY = (
    *("qat", "flash_attn_fuse_mlp", "reinit_weights", "relora", "model_quantization_config", "use_onebitllms"),
)


def _adapter(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Set the adapter.

    A new one turns the fused kernels on, so they are turned off if they do not support the model.
    """
    edits = (put(run, "adapter", value),)
    if run.adapter.kind is not None:
        return edits
    if any(run.config.get(key) for key in _WHOLE_MODEL_ONLY) or run.adapter.added_tokens:
        return None
    if attention_unknown(run) or model_refused(run):
        return (*edits, *(insert_key(key, False, beside="adapter") for key in reversed(LINEAR_KERNELS)))
    return edits


def _of_adapter(name: str, beside: str) -> Speller:
    """Return the speller of an adapter's key, which is inserted below a key that is written just before it."""

    def speller(run: RunSpec, value: Any) -> tuple[Edit, ...]:
        held = list(value) if isinstance(value, tuple) else value
        return (set_key(name, held) if name in run.config else insert_key(name, held, beside=beside),)

    return speller


def _quantization(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    reentrant_rl = (
        run.objective.rl is not None
        and run.batch.gpus > 1
        and run.config.get("gradient_checkpointing_kwargs.use_reentrant")
    )
    if value != "4bit" or reentrant_rl or any(run.config.get(key) for key in _QUANTISED_OTHERWISE):
        return None
    other = (set_key("load_in_8bit", False),) if run.config.get("load_in_8bit") else ()
    if "adapter" in run.config:
        return (put(run, "load_in_4bit", True), *other)
    return (insert_key("load_in_4bit", True, beside="adapter"), *other)  # both keys are new


def _experts(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    wanted = "load_in_8bit" if value == "8bit" else "load_in_4bit"
    return (put(run, "quantize_moe_experts", True),) if run.config.get(wanted) else None


def _precision(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    if value == "fp8":
        return None if (run.config.get("pad_to_multiple_of") or 0) % _FP8_TOKENS else (put(run, "fp8", True),)
    if value == "bf16":
        keys = [key for key in ("fp16", "float16") if key in run.config]
        dropped = tuple(delete_key(key) for key in (*keys, *_FP8) if key in run.config)
        if run.precision.compute == "fp8" and run.precision.weights_dtype == "bf16":
            return dropped  # bf16 is already on below fp8
        return (insert_key("bf16", "auto", beside=keys[0] if keys else "base_model"), *dropped)
    edits = [insert_key("bf16", False, beside="base_model")]
    if value == "fp16":
        edits.append(insert_key("fp16", True, beside="bf16"))
    return tuple(edits)


def _by_card(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Set `bf16: auto`, which is also what an absent key means."""
    if not value:
        return None
    dropped = [key for key in ("bfloat16", *_FP8) if run.config.get(key)]
    if "bf16" in run.config:
        edits = [set_key("bf16", "auto")]
    else:
        edits = [insert_key("bf16", "auto", beside="bfloat16")] if "bfloat16" in dropped else []
    return (*edits, *(delete_key(key) for key in dropped)) or None


SPELLERS: dict[str, Speller] = {
    "adapter": _adapter,
    "lora_r": _of_adapter("lora_r", "adapter"),
    "lora_alpha": _of_adapter("lora_alpha", "lora_r"),
    "lora_target_linear": _of_adapter("lora_target_linear", "lora_alpha"),
    "lora_target_modules": _of_adapter("lora_target_modules", "lora_alpha"),
    "quantization": _quantization,
    "expert_quantization": _experts,
    "optimizer": by_key("optimizer"),
    "precision": _precision,
    "precision_by_card": _by_card,
    "tf32": tf32,
}
