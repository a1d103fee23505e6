"""removed-key"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vramwise.rules.base import Hit, delete_key, insert_key, rule, safe, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import Deprecation, deprecations
from vramwise.types import Fix, RunSpec, Severity

# Successors that do the same with the same value. The others need a plugin, other values, or have no equal.
_SAME_VALUE = {"unsloth_lora_mlp", "unsloth_lora_qkv", "unsloth_lora_o"}


@rule(
    id="removed-key",
    severity=Severity.ERROR,
    topic="config",
    bad="base_model: meta-llama/Llama-3.2-1B\nmax_packed_sequence_len: 2048\n",
    good="base_model: meta-llama/Llama-3.2-1B\nsample_packing: true\nsequence_len: 2048\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A key or value that Axolotl has removed and now refuses.

    Old configs carry keys of features that are gone: `max_packed_sequence_len`, `rope_scaling` at the top level,
    `unsloth_*`, `flash_attn_rms_norm`, `s2_attention`, some DPO options that TRL dropped. Axolotl stops at each of
    them. `save_safetensors: false` is refused because transformers 5 writes safetensors only, and dataset types that
    start with `sharegpt` became `chat_template`.

    Use the successor that the message names. Fixes that only drop a speed-up or keep the meaning are safe; dropping a
    key that shaped the loss or the attention is not.
    """
    values = run.config.document.values
    for key, fact in deprecations().items():
        if fact.effect == "refused" and _is_refused(fact, values.get(key)):
            yield Hit(key=key, message=_message(fact), fix=_fix(run, fact, values[key]))
    if run.config.get("save_safetensors") is False:
        yield Hit(
            key="save_safetensors",
            message="save_safetensors: false is refused: transformers 5 writes safetensors only",
            fix=safe("Delete save_safetensors", delete_key("save_safetensors")),
        )
    yield from _sharegpt(values.get("datasets"))


def _is_refused(fact: Deprecation, value: Any) -> bool:
    return bool(value) if fact.unless_false else value is not None


def _message(fact: Deprecation) -> str:
    instead = f"; use {fact.successor}" if fact.successor else ""
    return f"{fact.key} was removed, Axolotl refuses the file{instead}"


def _fix(run: RunSpec, fact: Deprecation, value: Any) -> Fix:
    key = fact.key
    if key in _SAME_VALUE and fact.successor and fact.successor not in run.config:
        return safe(f"Use {fact.successor}", insert_key(fact.successor, value, beside=key), delete_key(key))
    if key == "rope_scaling" and "overrides_of_model_config" not in run.config and "model_config" not in run.config:
        moved = insert_key("overrides_of_model_config", {"rope_scaling": value}, beside=key)
        return safe("Move it into overrides_of_model_config", moved, delete_key(key))
    if key == "max_packed_sequence_len":
        return unsafe(f"Pack to sequence_len {value}", *_pack(value), delete_key(key))
    offer = unsafe if value else safe  # what is off is not missed
    return offer(f"Delete {key}", delete_key(key))


def _pack(length: Any) -> tuple[Any, ...]:
    key = "max_packed_sequence_len"
    return insert_key("sample_packing", True, beside=key), insert_key("sequence_len", length, beside=key)


def _sharegpt(datasets: Any) -> Iterator[Hit]:
    for index, dataset in enumerate(datasets if isinstance(datasets, list) else ()):
        kind = dataset.get("type") if isinstance(dataset, dict) else None
        if isinstance(kind, str) and kind.startswith("sharegpt"):
            key = f"datasets.{index}.type"
            yield Hit(
                key=key,
                near=("datasets",),
                message=f"dataset type {kind} was removed, Axolotl refuses the file; use chat_template",
                fix=unsafe("Use chat_template", set_key(key, "chat_template")),
            )
