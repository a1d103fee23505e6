"""removed-key"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vramwise.rules.base import Hit, delete_key, insert_key, rule, safe, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import Deprecation, Schema, schema_of
from vramwise.types import Fix, RunSpec, Severity, join_key

# FSDP1's strategies, by name or number, as FSDP2's reshard_after_forward.
_RESHARDS = {"FULL_SHARD": True, "HYBRID_SHARD": True, "1": True, "SHARD_GRAD_OP": False, "2": False}
# Successors that do the same with the same value. The others need a plugin or other values, or have no equivalent.
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

    Old configs contain keys of removed features: `max_packed_sequence_len`, `rope_scaling` at the top level,
    `unsloth_*`, `flash_attn_rms_norm`, `s2_attention`, and some DPO options that TRL dropped. Axolotl refuses each of
    them. It refuses `save_safetensors: false` because transformers 5 writes only safetensors. Dataset types that start
    with `sharegpt` became `chat_template`. Axolotl 0.20 removed FSDP1, and with it the top-level list `fsdp` and the
    options `sharding_strategy` and `forward_prefetch` of `fsdp_config`: `fsdp_config` alone now means FSDP2.

    Use the replacement that the message names. A fix is safe if it keeps the meaning or drops only a speed-up. Dropping
    a key that changed the loss or the attention is unsafe.
    """
    values = run.config.document.values
    schema = schema_of(run)
    for key, fact in schema.deprecations().items():
        if "." not in key and fact.refuses(values.get(key)):
            yield Hit(key=key, message=_message(fact), fix=_fix(run, fact, values[key]))
    yield from _fsdp_options(run, schema)
    if run.config.get("save_safetensors") is False:
        yield Hit(
            key="save_safetensors",
            message="Axolotl refuses save_safetensors: false: transformers 5 writes only safetensors",
            fix=safe("Delete save_safetensors", delete_key("save_safetensors")),
        )
    yield from _sharegpt(values.get("datasets"))


def _fsdp_options(run: RunSpec, schema: Schema) -> Iterator[Hit]:
    """Options of FSDP1 are refused wherever they are written, even empty, with or without the old prefix."""
    block = run.config.document.values.get("fsdp_config")
    for name, value in block.items() if isinstance(block, dict) else ():
        fact = schema.deprecations().get(f"fsdp_config.{schema.nested_name('fsdp_config', str(name))}")
        if fact is not None and fact.effect == "refused":
            key = join_key(("fsdp_config", name))
            end = f"; use {fact.successor}" if fact.successor else "; FSDP2 has no equivalent"
            message = f"Axolotl {schema.short} refuses {name}, an option of FSDP1, which 0.20 removed{end}"
            yield Hit(key=key, message=message, fix=_fsdp_fix(run, key, fact, value))


def _fsdp_fix(run: RunSpec, key: str, fact: Deprecation, value: Any) -> Fix | None:
    """Safe if the file already asks for FSDP2: there the option had no effect."""
    offer = safe if str(run.config.get("fsdp_version")) == "2" else unsafe
    successor = fact.successor
    if successor is None or successor in run.config:
        return offer(f"Delete {key}", delete_key(key))
    reshards = _RESHARDS.get(str(value).upper())
    if reshards is None:
        return None
    written = insert_key(successor, reshards, beside=key)
    return offer(f"Set {successor}: {str(reshards).lower()}", written, delete_key(key))


def _message(fact: Deprecation) -> str:
    instead = f"; use {fact.successor}" if fact.successor else ""
    return f"{fact.key} was removed from Axolotl, which refuses it{instead}"


def _fix(run: RunSpec, fact: Deprecation, value: Any) -> Fix:
    key = fact.key
    if key in _SAME_VALUE and fact.successor and fact.successor not in run.config:
        return safe(f"Use {fact.successor}", insert_key(fact.successor, value, beside=key), delete_key(key))
    if key == "rope_scaling" and "overrides_of_model_config" not in run.config and "model_config" not in run.config:
        moved = insert_key("overrides_of_model_config", {"rope_scaling": value}, beside=key)
        return safe("Move it into overrides_of_model_config", moved, delete_key(key))
    if key == "fsdp":
        return _shard_by_config(run, value)
    if key == "max_packed_sequence_len":
        return unsafe(f"Pack to sequence_len {value}", *_pack(value), delete_key(key))
    offer = unsafe if value else safe  # a key that is off changes nothing
    return offer(f"Delete {key}", delete_key(key))


def _shard_by_config(run: RunSpec, value: Any) -> Fix:
    """Shard with FSDP2: the words of the old list become options of fsdp_config."""
    words = {str(word) for word in (value if isinstance(value, list) else str(value).split())}
    if run.config.get("fsdp_config"):
        return unsafe("Use fsdp_config alone, which is FSDP2", delete_key("fsdp"))
    block: dict[str, Any] = {"reshard_after_forward": "shard_grad_op" not in words}
    block |= {"offload_params": True} if "offload" in words else {}
    block |= {"auto_wrap_policy": "TRANSFORMER_BASED_WRAP"} if "auto_wrap" in words else {}
    return unsafe(
        "Use fsdp_config, which is FSDP2", insert_key("fsdp_config", block, beside="fsdp"), delete_key("fsdp")
    )


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
                message=f"dataset type {kind} was removed from Axolotl, which refuses it; use chat_template",
                fix=unsafe("Use chat_template", set_key(key, "chat_template")),
            )
