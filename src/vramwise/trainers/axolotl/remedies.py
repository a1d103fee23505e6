"""Single edits made for the spelling that the file uses; what changes do and whether they apply is `changes`' word."""

from __future__ import annotations

from vramwise.rules.base import insert_key, set_key
from vramwise.types import Edit, RunSpec, join_key

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


def choose_reentrant(run: RunSpec, value: bool) -> Edit:
    """Write `gradient_checkpointing_kwargs.use_reentrant`, making the block where there is none."""
    key = f"{_KWARGS}.use_reentrant"
    if key in run.config:
        return set_key(key, value)
    block = run.config.get(_KWARGS)
    if block:
        return insert_key(key, value, beside=f"{_KWARGS}.{next(iter(block))}")
    return insert_key(_KWARGS, {"use_reentrant": value}, beside="gradient_checkpointing")
