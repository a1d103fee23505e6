"""Edits of attention, loss, Liger and LoRA kernels."""

from __future__ import annotations

from typing import Any

from vramwise.rules.base import delete_key, insert_key, set_key
from vramwise.trainers.axolotl.plugins import CUT_CROSS_ENTROPY, LIGER, list_plugin, listed_plugins
from vramwise.trainers.axolotl.resolve.kernels import LEGACY_FLAGS
from vramwise.trainers.axolotl.resolve.lora_kernels import KERNELS, LINEAR_KERNELS, kernels_work
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.trainers.axolotl.spell.edits import put
from vramwise.trainers.spelling import Speller
from vramwise.types import Edit, RunSpec

_FUSED, _CHUNKED = "liger_fused_linear_cross_entropy", "chunked_cross_entropy"
_LOSSES = {"liger_fused_linear": _FUSED, "chunked": _CHUNKED, "stock": ""}
_LIGER_PARTS = ("rope", "rms_norm", "layer_norm", "glu_activation", "swiglu", "rms_norm_gated")


def _loss_kernel(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    if value not in _LOSSES or (run.config.get("liger_use_token_scaling") and value != "liger_fused_linear"):
        return None
    edits: tuple[Edit, ...] | None = ()
    if value == "liger_fused_linear":
        edits = _beside_plugin(run, {_FUSED: True})
    elif value == "chunked":
        # refused with that plugin, even if it is turned off
        edits = None if CUT_CROSS_ENTROPY in listed_plugins(run) else (put(run, _CHUNKED, True),)
    if edits is None:
        return None
    others = (key for key in (_CHUNKED, "liger_cross_entropy", _FUSED) if key != _LOSSES[value])
    return (*edits, *(delete_key(key) for key in others if run.config.get(key)))


def _liger(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Set the kernels besides the loss; unwanted ones are turned off where they are written."""
    wanted = {f"liger_{name}": True for name in value}
    off = [key for name in _LIGER_PARTS if (key := f"liger_{name}") not in wanted and run.config.get(key)]
    # the old and the new name of one kernel must not both be set, whatever their values
    dropped = [key for key in ("liger_swiglu",) if wanted and key in run.config]
    edits = _beside_plugin(run, wanted) if wanted else ()
    if edits is None:
        return None
    return (*edits, *(set_key(key, False) for key in off if key not in dropped), *map(delete_key, dropped))


def _beside_plugin(run: RunSpec, keys: dict[str, bool]) -> tuple[Edit, ...] | None:
    """Set keys of Liger's plugin, listing it if necessary; None if `plugins` is not a list."""
    plugin = list_plugin(run, LIGER, beside="base_model")
    if plugin is None and LIGER not in listed_plugins(run):
        return None
    edits = () if plugin is None else (plugin,)
    return (*edits, *(insert_key(key, value, beside="plugins") for key, value in reversed(keys.items())))


def _lora_kernels(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Set all LoRA kernels: if one key is written, even as false, the others stay off."""
    if value and not kernels_work(run):
        return None
    written = [key for key in KERNELS if run.config.get(key)]
    keys = LINEAR_KERNELS if value else dict.fromkeys((*LINEAR_KERNELS, *written))
    return tuple(
        set_key(key, bool(value)) if key in run.config else insert_key(key, bool(value), beside="adapter")
        for key in reversed(tuple(keys))
    )


def _attention(run: RunSpec, value: Any) -> tuple[Edit, ...] | None:
    """Set `attn_implementation`, replacing an old flag; None if another key refuses the backend."""
    key = run.origins["attn_implementation"].key
    if value == "sdpa" and _bound_to_flash(run):
        return None
    if key in (None, "attn_implementation"):
        return (put(run, "attn_implementation", value),)
    if key in LEGACY_FLAGS:
        return (insert_key("attn_implementation", value, beside=key), delete_key(key))
    return None


def _bound_to_flash(run: RunSpec) -> bool:
    """Return whether sdpa is impossible: Gemma 4's hybrid, flattened batches, or context parallelism up to 0.19."""
    flattened = run.config.get("batch_flattening") is True
    ring = run.sharding.context_parallel_size > 1 and not schema_of(run).since("0.20.0")
    return ring or bool(run.config.get("gemma4_hybrid_attn_impl")) or flattened


SPELLERS: dict[str, Speller] = {
    "attn_implementation": _attention,
    "loss_kernel": _loss_kernel,
    "liger": _liger,
    "fused_lora": _lora_kernels,
}
