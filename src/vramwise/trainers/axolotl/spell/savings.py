"""Edits of checkpointing, offloading, compilation and the cache."""

from __future__ import annotations

from typing import Any

from vramwise.rules.base import set_key
from vramwise.trainers.axolotl.spell.edits import by_key, choose_reentrant, put
from vramwise.trainers.spelling import Speller
from vramwise.types import Edit, RunSpec

_KEY, _OFFLOAD = "gradient_checkpointing", "activation_offloading"
_MODES = {"off": False, "stream": True}


def _checkpointing(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Set gradient_checkpointing; selective checkpointing needs it, and an absent key means off."""
    if not value and run.config.get("selective_checkpointing"):
        return None
    return (put(run, _KEY, value),) if value or _KEY in run.config else ()


def _offloading(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Set activation_offloading.

    `gradient_checkpointing: offload` is the old spelling of both; selective checkpointing offloads only inputs.
    """
    if run.config.get("selective_checkpointing") and value in ("stream", "legacy"):
        return None
    old = isinstance(run.config.get(_KEY), str)
    edits = [set_key(_KEY, True)] if old else []
    if value != "off" or _OFFLOAD in run.config:
        edits.append(put(run, _OFFLOAD, _MODES.get(value, value)))
    return tuple(edits)


def _reentrant(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Set the form of checkpointing; partly frozen models and distributed RL with QLoRA refuse the reentrant one."""
    distributed_rl = run.objective.rl is not None and run.loading.quantization == "4bit" and run.batch.gpus > 1
    if value and (distributed_rl or run.config.get("unfrozen_parameters")):
        return None
    return (choose_reentrant(run, value),)


def _empty_cache(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    return None if run.config.get("gc_steps") else (put(run, "gc_steps", -1),)


SPELLERS: dict[str, Speller] = {
    "gradient_checkpointing": _checkpointing,
    "activation_offloading": _offloading,
    "checkpointing_reentrant": _reentrant,
    "torch_compile": by_key("torch_compile"),
    "empty_cache_at_eval": _empty_cache,
}
