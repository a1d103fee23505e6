"""Edits of sharding: FSDP 2, ZeRO, and when gradients are exchanged."""

from __future__ import annotations

from typing import Any

from vramwise.rules.base import delete_key, insert_key, set_key
from vramwise.trainers.axolotl.spell.edits import PREFERENCE_TRAINING, choose_fsdp_version, put, written_key
from vramwise.trainers.spelling import Speller
from vramwise.types import Edit, RunSpec

_SYNCED = {"gradient_accumulation_kwargs": {"sync_each_batch": True}}
# As in Axolotl's multi-GPU guide; the model decides which class is a block.
_FSDP2 = {
    "offload_params": False,
    "cpu_ram_efficient_loading": True,
    "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "state_dict_type": "FULL_STATE_DICT",
    "reshard_after_forward": True,
}
_FOLDER = "deepspeed_configs"
FETCH = f"axolotl fetch {_FOLDER}"


def _sharding(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    if value == "fsdp2":
        return _fsdp2(run)
    return _zero(run, value) if value in ("zero1", "zero2", "zero3") else None


def _fsdp2(run: RunSpec) -> tuple[Edit, ...] | None:
    """Switch to FSDP 2; None if it is refused, as in preference training on a quantised base."""
    quantised = run.config.get("load_in_4bit") or run.config.get("load_in_8bit")
    if quantised and run.objective.rl in PREFERENCE_TRAINING:
        return None
    if run.config.get("fsdp_config") or run.config.get("fsdp"):
        return (choose_fsdp_version(run, 2),)
    if "falcon" in (run.base_model or "").lower() or any(key in run.config for key in ("fsdp", "fsdp_config")):
        return None
    beside = "deepspeed" if "deepspeed" in run.config else "micro_batch_size"
    edits = (insert_key("fsdp_version", 2, beside=beside), insert_key("fsdp_config", _FSDP2, beside="fsdp_version"))
    return (*edits, delete_key("deepspeed")) if "deepspeed" in run.config else edits


def _zero(run: RunSpec, stage: str) -> tuple[Edit, ...] | None:
    """Use one of the files that Axolotl ships, in the folder of the current file."""
    written = run.config.get("deepspeed")
    if run.config.get("fsdp_config") or run.config.get("fsdp") or not isinstance(written, str | None):
        return None
    if stage == "zero3" and run.config.get("auto_find_batch_size"):
        return None
    folder = written.rpartition("/")[0] if written else _FOLDER
    return (put(run, "deepspeed", f"{folder}/{stage}.json" if folder else f"{stage}.json"),)


def _exchange(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    if not value or run.config.get("accelerator_config") is not None:
        return None
    return (put(run, "accelerator_config", _SYNCED),)


def _checkpoints(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    key, wanted = "fsdp_config.state_dict_type", "SHARDED_STATE_DICT"
    if value or run.config.get(key) == wanted:
        return None
    if key in run.config:
        return (set_key(written_key(run, key), wanted),)
    return (insert_key(key, wanted, beside="fsdp_config"),)


SPELLERS: dict[str, Speller] = {
    "sharding": _sharding,
    "gathers_checkpoints": _checkpoints,
    "sync_each_batch": _exchange,
}
