"""Edits that several rules offer, made for the spelling that the file uses. Judges nothing itself."""

from __future__ import annotations

from vramwise.rules.base import delete_key, insert_key, safe, set_key, unsafe
from vramwise.trainers.axolotl.attention import LEGACY_FLAGS
from vramwise.types import Edit, Fix, RunSpec, join_key

PREFERENCE_TRAINING = ("dpo", "kto", "orpo", "ipo")
_KWARGS = "gradient_checkpointing_kwargs"


def written_key(run: RunSpec, key: str) -> str:
    """The dotted key as the file spells it: `fsdp_config.fsdp_offload_params` for `fsdp_config.offload_params`."""
    return join_key(run.config.path(key))


def choose_fsdp_version(run: RunSpec, version: int) -> Edit:
    """Write `fsdp_version`, where the file has it or beside the FSDP block."""
    if "fsdp_version" in run.config:
        return set_key(written_key(run, "fsdp_version"), version)
    beside = "fsdp_config" if "fsdp_config" in run.config else "fsdp"
    return insert_key("fsdp_version", version, beside=beside)


def shard_with_fsdp2(run: RunSpec) -> Fix | None:
    """FSDP2 in place of FSDP1; None where FSDP2 is refused: preference training on a quantised base."""
    quantised = run.config.get("load_in_4bit") or run.config.get("load_in_8bit")
    if quantised and run.rl in PREFERENCE_TRAINING:
        return None
    return unsafe("Shard with FSDP2: fsdp_version 2", choose_fsdp_version(run, 2))


def choose_attention(run: RunSpec, name: str) -> tuple[Edit, ...]:
    """Write `attn_implementation`, in place of an old flag if one decided.

    Empty where no written key decided, or where another key of the file would refuse the new backend.
    """
    key = run.origins["attn_implementation"].key
    if name == "sdpa" and _bound_to_flash(run):
        return ()
    if key == "attn_implementation":
        return (set_key(key, name),)
    if key in LEGACY_FLAGS:
        return (insert_key("attn_implementation", name, beside=key), delete_key(key))
    return ()


def _bound_to_flash(run: RunSpec) -> bool:
    """Ring attention, Gemma 4's hybrid and flattened batches do not run on sdpa."""
    flattened = run.config.get("batch_flattening") is True
    return run.context_parallel_size > 1 or bool(run.config.get("gemma4_hybrid_attn_impl")) or flattened


def turn_checkpointing_on(run: RunSpec, beside: str) -> Fix | None:
    """Gradient checkpointing on, which training's result does not depend on; None for MPT, which has none."""
    if "mpt" in (run.base_model or "").lower():
        return None
    return safe("Turn gradient_checkpointing on", insert_key("gradient_checkpointing", True, beside=beside))


def choose_reentrant(run: RunSpec, value: bool) -> Edit:
    """Write `gradient_checkpointing_kwargs.use_reentrant`, making the block where there is none."""
    key = f"{_KWARGS}.use_reentrant"
    if key in run.config:
        return set_key(key, value)
    block = run.config.get(_KWARGS)
    if block:
        return insert_key(key, value, beside=f"{_KWARGS}.{next(iter(block))}")
    return insert_key(_KWARGS, {"use_reentrant": value}, beside="gradient_checkpointing")
