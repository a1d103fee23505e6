"""Single edits in the spelling that the file uses; `variants.changes` decides what changes and when."""

from __future__ import annotations

from functools import partial

from vramwise.rules.base import insert_key, set_key
from vramwise.trainers.spelling import KWARGS, placed, reentrant, speller_by_key
from vramwise.types import Edit, RunSpec, join_key

PREFERENCE_TRAINING = ("dpo", "kto", "orpo", "ipo")
_RELATED = ("micro_batch_size", "gradient_accumulation_steps", "sequence_len", "optimizer", "base_model")
# The keys below which a new line is inserted, before those of the general list.
_BESIDE = {
    "pad_to_sequence_len": ("sequence_len", "sample_packing"),
    "sample_packing": ("sequence_len",),
    "gradient_checkpointing": ("activation_offloading", "selective_checkpointing", "bf16"),
    "activation_offloading": ("gradient_checkpointing",),
    "gradient_accumulation_steps": ("micro_batch_size",),
    "attn_implementation": ("sample_packing", "context_parallel_size", "sequence_parallel_degree"),
    "torch_compile": ("fp8",),
    "fp8": ("bf16",),
    "accelerator_config": ("gradient_accumulation_steps",),
    "load_in_4bit": ("load_in_8bit", "adapter"),
    "quantize_moe_experts": ("load_in_4bit", "load_in_8bit", "adapter"),
    "adapter": ("base_model",),
    "chunked_cross_entropy": ("liger_fused_linear_cross_entropy", "liger_cross_entropy"),
}


def written_key(run: RunSpec, key: str) -> str:
    """Return the dotted key as the file spells it.

    `fsdp_config.fsdp_offload_params` for `fsdp_config.offload_params`, for example.
    """
    return join_key(run.config.path(key))


def put(run: RunSpec, key: str, value: object) -> Edit:
    """Set the key as the file spells it, or insert it beside a related one."""
    return placed(run, key, value, (*_BESIDE.get(key, ()), *_RELATED), "base_model")


# The speller of a setting that has its own key.
by_key = partial(speller_by_key, put)


def choose_fsdp_version(run: RunSpec, version: int) -> Edit:
    """Set `fsdp_version` where the file has it, or beside the FSDP block."""
    if "fsdp_version" in run.config:
        return set_key(written_key(run, "fsdp_version"), version)
    beside = "fsdp_config" if "fsdp_config" in run.config else "fsdp"
    return insert_key("fsdp_version", version, beside=beside)


def choose_reentrant(run: RunSpec, value: bool) -> Edit:
    """Set `gradient_checkpointing_kwargs.use_reentrant`, creating the block if there is none."""
    block = insert_key(KWARGS, {"use_reentrant": value}, beside="gradient_checkpointing")
    return reentrant(run, value, block)
