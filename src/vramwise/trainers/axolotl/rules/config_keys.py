"""Axolotl's own rules about keys: unknown, deprecated, removed, or read by a plugin that is not listed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from vramwise.rules.base import Hit, delete_key, insert_key, rule, safe, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.plugins import list_plugin, loaded_plugins
from vramwise.trainers.axolotl.schema import Deprecation, Schema, elsewhere, history, schema_of, suggest, value_history
from vramwise.types import Edit, Fix, RunSpec, Severity, join_key


class _Renamed(NamedTuple):
    """The new name of a key. `both_refused`: Axolotl refuses both together; otherwise the new one wins."""

    new: str
    both_refused: bool = False


_RENAMED = {
    "noisy_embedding_alpha": _Renamed("neftune_noise_alpha", both_refused=True),
    "dpo_beta": _Renamed("rl_beta"),
    "evaluation_strategy": _Renamed("eval_strategy"),
    "pretrain_multipack_buffer_size": _Renamed("streaming_multipack_buffer_size", both_refused=True),
    "dataset_processes": _Renamed("dataset_num_proc"),
    "sequence_parallel_degree": _Renamed("context_parallel_size"),
    "liger_swiglu": _Renamed("liger_glu_activation", both_refused=True),
}
# Deprecated keys that still work; their successors behave slightly differently.
_ON_THE_WAY_OUT = {
    "eval_table_size": "generate_samples and num_generation_samples",
    "eval_max_new_tokens": "generation_max_new_tokens",
    "fsdp": "fsdp_config",
}
_NOT_READ = ("ring_attn_func", "heads_k_stride")
_GC = ("torch_empty_cache_steps", "gc_collect_steps")


@rule(
    id="deprecated-key",
    severity=Severity.INFO,
    also=(Severity.WARNING, Severity.ERROR),
    bad="evaluation_strategy: steps\neval_steps: 50\ngradient_checkpointing: offload\n",
    good="eval_strategy: steps\neval_steps: 50\ngradient_checkpointing: true\nactivation_offloading: true\n",
)
def deprecated_key(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A deprecated key or value that Axolotl still reads.

    Axolotl translates these to their new names and warns. A later release will refuse them. The fixes write what
    Axolotl reads them as today, so the run stays the same. If both the old and the new name are set, either the new one
    wins (a warning, because the old value has no effect) or Axolotl refuses the file (an error).

    removed-key reports keys that Axolotl already refuses. legacy-attention-flag reports the old attention flags.
    """
    yield from _renamed(run)
    yield from _aliases(run)
    yield from _gc_steps(run)
    yield from _checkpointing(run)
    yield from _fsdp(run)
    yield from _not_read(run)
    yield from _others(run)


def _renamed(run: RunSpec) -> Iterator[Hit]:
    for old, renamed in _RENAMED.items():
        value, newer = run.config.get(old), run.config.get(renamed.new)
        if (not value and value is not False) or not _is_read(run, old):
            continue
        if newer is None or (not newer and old != "liger_swiglu"):  # a zero is overwritten too
            edits = (insert_key(renamed.new, value, beside=old), delete_key(old))
            message = f"{old} is deprecated: it is now called {renamed.new}"
            yield Hit(message, old, safe(f"Rename it to {renamed.new}", *edits))
        else:
            yield _both(old, renamed.new, value, newer, refused=renamed.both_refused)


def _is_read(run: RunSpec, key: str) -> bool:
    """Whether Axolotl reads the key: it drops a plugin's key if the plugin is not listed."""
    plugin = schema_of(run).plugin_keys().get(key)
    return plugin is None or plugin in loaded_plugins(run)


def _both(old: str, new: str, value: Any, newer: Any, *, refused: bool) -> Hit:
    effect = "Axolotl refuses both together" if refused else f"{old} has no effect"
    drop = safe if not refused or value == newer else unsafe
    return Hit(
        f"{old} {value} and {new} {newer} set the same option: {effect}",
        old,
        drop(f"Keep {new} {newer}", delete_key(old)),
        severity=Severity.ERROR if refused else Severity.WARNING,
    )


def _aliases(run: RunSpec) -> Iterator[Hit]:
    """`model_type` and `type_of_model` are both valid; if both are set, one has no effect."""
    values = run.config.document.values
    for short, long in schema_of(run).aliases().items():
        if values.get(short) is not None and values.get(long) is not None:
            yield Hit(
                f"{long} and {short} set the same option: {long} has no effect",
                long,
                safe(f"Keep {short}", delete_key(long)),
                severity=Severity.WARNING,
            )


def _gc_steps(run: RunSpec) -> Iterator[Hit]:
    steps = run.config.get("gc_steps")
    if steps is None:
        return
    newer = [key for key in _GC if run.config.get(key) is not None]
    if newer:
        yield Hit(
            f"gc_steps {steps} is deprecated: use {' and '.join(_GC)}; {' and '.join(newer)} overrides it",
            "gc_steps",
            safe("Delete gc_steps", delete_key("gc_steps")) if "gc_collect_steps" in newer else None,
            severity=Severity.WARNING,
        )
        return
    written = _GC if steps > 0 else _GC[1:]
    inserts = [insert_key(key, steps, beside="gc_steps") for key in written]
    yield Hit(
        f"gc_steps {steps} is deprecated: Axolotl reads it as {' and '.join(written)}",
        "gc_steps",
        safe(f"Set {' and '.join(written)} instead", *inserts, delete_key("gc_steps")),
    )


def _checkpointing(run: RunSpec) -> Iterator[Hit]:
    key = "gradient_checkpointing"
    mode = {"offload": True, "offload_disk": "disk"}.get(str(run.config.get(key)))
    if mode is None:
        return
    shown = "true" if mode is True else mode
    yield Hit(
        f"{key}: {run.config.get(key)} is deprecated: use {key}: true with activation_offloading: {shown}",
        key,
        safe(
            "Set both keys",
            insert_key("activation_offloading", mode, beside=key),
            Edit(op="set", key=key, value=True),
        ),
    )


def _fsdp(run: RunSpec) -> Iterator[Hit]:
    written = run.config.document.values.get("fsdp_config")
    block: dict[str, Any] = written if isinstance(written, dict) else {}
    known = schema_of(run).nested_keys("fsdp_config")  # unknown names are reported by unknown-key
    prefixed = {name: name.removeprefix("fsdp_") for name in block if name in known and name != "fsdp_version"}
    old = {name: short for name, short in prefixed.items() if name != short and short not in block}
    if old:
        yield _prefix(block, old)
    for name, short in prefixed.items():
        if name != short and short in block:
            yield _twice(f"fsdp_config.{name}", f"fsdp_config.{short}", block[name], block[short])
    if value := run.config.get("fsdp_final_state_dict_type"):
        yield Hit(
            f"fsdp_final_state_dict_type {value} is no longer read: use fsdp_config.final_state_dict_type",
            "fsdp_final_state_dict_type",
            _move_state_dict_type(run, value),
            severity=Severity.WARNING,
        )


def _prefix(block: dict[str, Any], old: dict[str, str]) -> Hit:
    """One finding for all keys with the old prefix: one fix changes them together."""
    edits: list[Edit] = []
    for name, short in old.items():
        edits += (insert_key(f"fsdp_config.{short}", block[name], beside=f"fsdp_config.{name}"),)
        edits += (delete_key(f"fsdp_config.{name}"),)
    first = next(iter(old))
    what = f"{first} and {len(old) - 1} more keys of fsdp_config have" if len(old) > 1 else f"{first} has"
    return Hit(
        f"{what} the deprecated fsdp_ prefix: the name is now {old[first]}",
        f"fsdp_config.{first}",
        safe("Drop the fsdp_ prefix", *edits),
    )


def _twice(old: str, new: str, value: Any, newer: Any) -> Hit:
    drop = safe if value == newer else unsafe
    return Hit(
        f"{old} {value} and {new} {newer} set the same option: the later one in the file wins",
        old,
        drop(f"Keep {new} {newer}", delete_key(old)),
        severity=Severity.WARNING,
    )


def _move_state_dict_type(run: RunSpec, value: str) -> Fix | None:
    new = "fsdp_config.final_state_dict_type"
    if new in run.config or not run.config.get("fsdp_config"):
        return safe("Delete it", delete_key("fsdp_final_state_dict_type"))
    moved = insert_key(new, value, beside=f"fsdp_config.{next(iter(run.config.document.values['fsdp_config']))}")
    return unsafe(f"Move it to {new}", moved, delete_key("fsdp_final_state_dict_type"))


def _not_read(run: RunSpec) -> Iterator[Hit]:
    """Top-level keys that this version accepts but does not read."""
    for key in _NOT_READ:
        fact = schema_of(run).deprecations().get(key)
        if fact is not None and run.config.get(key) is not None:
            instead = f": use {fact.successor}" if fact.successor else ""
            message = f"{key} is no longer read by Axolotl {schema_of(run).short}{instead}"
            fix = safe(f"Delete {key}, which is not read", delete_key(key))
            yield Hit(message, key, fix, severity=Severity.WARNING)


def _others(run: RunSpec) -> Iterator[Hit]:
    facts = schema_of(run).deprecations()
    for old, successor in _ON_THE_WAY_OUT.items():
        if run.config.get(old) and old in facts and facts[old].effect == "works":
            yield Hit(f"{old} is deprecated: use {successor}", old)
    if run.config.get("flash_attn_d512") and not run.config.get("large_head_attention"):
        edits = (insert_key("large_head_attention", "auto", beside="flash_attn_d512"), delete_key("flash_attn_d512"))
        message = "flash_attn_d512 is deprecated: use large_head_attention: auto"
        yield Hit(message, "flash_attn_d512", safe("Set large_head_attention: auto", *edits))
    if run.objective.rl == "ipo":
        yield Hit("rl: ipo is deprecated: use rl: dpo with dpo_loss_type: [ipo]", "rl")
    if run.config.get("pretraining_dataset") and not run.config.get("streaming"):
        yield Hit(
            "a later Axolotl will stream pretraining_dataset only with streaming: true",
            "pretraining_dataset",
            safe("Set streaming: true", insert_key("streaming", True, beside="pretraining_dataset")),
        )


@rule(
    id="plugin-key-without-plugin",
    severity=Severity.WARNING,
    bad="base_model: meta-llama/Llama-3.2-1B\nliger_rope: true\nliger_fused_linear_cross_entropy: true\n",
    good=(
        "base_model: meta-llama/Llama-3.2-1B\nplugins:\n  - axolotl.integrations.liger.LigerPlugin\n"
        "liger_rope: true\nliger_fused_linear_cross_entropy: true\n"
    ),
    beyond_trainer="Without the plugin its keys are unknown to the schema, which drops unknown keys without warning.",
)
def plugin_key_without_plugin(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A key belongs to a plugin that is not listed under `plugins`.

    `liger_*`, `cut_cross_entropy`, `kd_*` and others are read only if their plugin is listed. Otherwise Axolotl drops
    them without warning: the fused loss is not used, and the run needs the memory that it would have saved.

    List the plugin. The fix is unsafe because the kernels then really run: they change the numerics, and their package
    must be installed. Keys that are off or empty are not reported.
    """
    loaded = loaded_plugins(run)
    dropped: dict[str, list[str]] = {}
    for key, plugin in schema_of(run).plugin_keys().items():
        if plugin not in loaded and run.config.document.values.get(key) not in (None, False):
            dropped.setdefault(plugin, []).append(key)
    for plugin, keys in dropped.items():
        first, *others = sorted(keys, key=list(run.config.document.values).index)
        name = plugin.rpartition(".")[2]
        yield Hit(
            f"{_plugin_names(first, others)} dropped without warning: {name} is not listed under plugins",
            first,
            _add_plugin(run, plugin, first),
        )


def _plugin_names(first: str, others: list[str]) -> str:
    if not others:
        return f"{first} is"
    if len(others) > 3:
        return f"{first} and {len(others)} more keys of the same plugin are"
    return f"{', '.join((first, *others[:-1]))} and {others[-1]} are"


def _add_plugin(run: RunSpec, plugin: str, key: str) -> Fix | None:
    edit = list_plugin(run, plugin, beside=key)
    return None if edit is None else unsafe(f"Add {plugin} to plugins", edit)


# FSDP1's strategies, by name or number, as FSDP2's reshard_after_forward.
_RESHARDS = {"FULL_SHARD": True, "HYBRID_SHARD": True, "1": True, "SHARD_GRAD_OP": False, "2": False}
# Successors that do the same with the same value. The others need a plugin or other values, or have no equivalent.
_SAME_VALUE = {"unsloth_lora_mlp", "unsloth_lora_qkv", "unsloth_lora_o"}


@rule(
    id="removed-key",
    bad="base_model: meta-llama/Llama-3.2-1B\nmax_packed_sequence_len: 2048\n",
    good="base_model: meta-llama/Llama-3.2-1B\nsample_packing: true\nsequence_len: 2048\n",
)
def removed_key(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
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
            yield Hit(_removed_message(fact), key, _fix_removed(run, fact, values[key]))
    yield from _fsdp_options(run, schema)
    if run.config.get("save_safetensors") is False and schema.since("0.14.0"):
        yield Hit(
            "Axolotl refuses save_safetensors: false: transformers 5 writes only safetensors",
            "save_safetensors",
            safe("Delete save_safetensors", delete_key("save_safetensors")),
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
            yield Hit(message, key, _fsdp_fix(run, key, fact, value))


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


def _removed_message(fact: Deprecation) -> str:
    instead = f"; use {fact.successor}" if fact.successor else ""
    return f"{fact.key} was removed from Axolotl, which refuses it{instead}"


def _fix_removed(run: RunSpec, fact: Deprecation, value: Any) -> Fix:
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
                f"dataset type {kind} was removed from Axolotl, which refuses it; use chat_template",
                key,
                unsafe("Use chat_template", set_key(key, "chat_template")),
            )


# Names that other trainers use, and Axolotl's name for the same setting.
_ELSEWHERE = {
    "adam_eps": "adam_epsilon",
    "epochs": "num_epochs",
    "gradient_accumulation": "gradient_accumulation_steps",
    "lora_rank": "lora_r",
    "lr": "learning_rate",
    "lr_scheduler_type": "lr_scheduler",
    "max_length": "sequence_len",
    "max_seq_len": "sequence_len",
    "max_seq_length": "sequence_len",
    "model_name_or_path": "base_model",
    "num_train_epochs": "num_epochs",
    "optim": "optimizer",
    "packing": "sample_packing",
    "per_device_eval_batch_size": "eval_batch_size",
    "per_device_train_batch_size": "micro_batch_size",
}
# Settings of fsdp_config that are dropped, and the value that applies anyway.
_IN_FORCE = {"sharding_strategy": "FULL_SHARD", "limit_all_gathers": True, "forward_prefetch": False}
# From this similarity on, a misspelt word is assumed to mean the similar one.
_VERY_CLOSE = 0.88
# Keys that hold YAML anchors for use elsewhere in the file; dropping them is intended.
_HOLDERS = ("x-", "_", ".")


@rule(
    id="unknown-key",
    severity=Severity.WARNING,
    also=(Severity.INFO, Severity.ERROR),
    bad="base_model: meta-llama/Llama-3.2-1B\ngradient_acumulation_steps: 8\nmicro_batch_size: 1\n",
    good="base_model: meta-llama/Llama-3.2-1B\ngradient_accumulation_steps: 8\nmicro_batch_size: 1\n",
    beyond_trainer="Axolotl drops unknown keys without warning.",
)
def unknown_key(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A key that Axolotl does not know.

    Axolotl ignores unknown keys without warning, at the top level and inside blocks such as `fsdp_config` and `trl`. A
    misspelt memory setting therefore has no effect. One of Axolotl's own examples runs without context parallelism
    because of `context_parapllel_size`. A few blocks (`fp8_config`) refuse unknown keys instead.

    A misspelt name of a setting that decides the run is an error. Correct the name, or delete the key. If the config
    lists a plugin that is not Axolotl's own, the key may belong to that plugin, so the finding is only a hint. A key
    without a value (or `false`) is harmless and reported only with `--pedantic`. If another version of Axolotl has the
    key, the message names that version: the config may be written for it (`--with axolotl==…`). Keys that start with
    `x-`, `_` or `.` are assumed to hold YAML anchors and are not reported.
    """
    values = run.config.document.values
    schema = schema_of(run)
    weak = Severity.INFO if _lists_foreign_plugin(schema, values) else None
    known = schema.keys() | schema.plugin_keys().keys()
    for key, value in values.items():
        if key in known:
            yield from _unknown_inside(schema, key, value)
        elif key in schema.deprecations():
            yield from _removed_but_named(schema, key, value)
        elif not key.startswith(_HOLDERS):
            fix, idle = _rename(key, value, known, values), _is_idle(key, value)
            meant = weak is None and not idle and _is_setting(fix, run)
            yield Hit(
                _unknown(schema, key, known),
                join_key((key,)),
                fix,
                severity=Severity.INFO if idle else Severity.ERROR if meant else weak,
                pedantic=idle,
                still_runs=meant,
            )


def _is_setting(renames: Fix | None, run: RunSpec) -> bool:
    """Return whether a key is clearly a misspelling of one that affects the run."""
    return renames is not None and renames.edits[0].key in run.keys.values()


def _is_idle(key: str, value: Any) -> bool:
    """Whether dropping the key changes nothing: it is empty, or `debug`, which old examples contain without effect.

    False counts as a setting if some version has the key: it may turn off what this version does.
    """
    return value is None or key == "debug" or (value is False and history(key) is None)


def _removed_but_named(schema: Schema, key: str, value: Any) -> Iterator[Hit]:
    """A removed key that is off or empty counts as unknown; if it is on, removed-key reports it."""
    fact = schema.deprecations()[key]
    if fact.effect == "refused" and not fact.refuses(value):
        message = f"{key} is no longer a key of Axolotl {schema.short}, but it is off: dropping it changes nothing"
        fix = safe(f"Delete {key}", delete_key(key))
        yield Hit(message, key, fix, severity=Severity.INFO, pedantic=True)


def _unknown_inside(schema: Schema, key: str, value: Any) -> Iterator[Hit]:
    if not isinstance(value, Mapping) or f"block({key})" not in (schema.key_type(key) or ""):
        return
    known, top_level = schema.nested_keys(key), schema.keys()
    for name, held in value.items():
        if not isinstance(name, str) or name in known:
            continue
        fact = schema.deprecations().get(f"{key}.{schema.nested_name(key, name)}")
        if fact is not None:
            yield from _removed_inside(schema, key, name, fact)
            continue
        severity = _unknown_severity(schema, key, name, held)
        message = _unknown(schema, name, known, block=key, refused=severity is Severity.ERROR)
        if severity is Severity.INFO:
            message += f"; {held} applies anyway"
        fix = _moved(top_level, name, held, key) or _rename(name, held, known, value, block=key)
        in_force = severity is Severity.INFO
        place = join_key((key, name))
        yield Hit(message, place, fix, severity=severity, pedantic=in_force)


def _removed_inside(schema: Schema, block: str, name: str, fact: Deprecation) -> Iterator[Hit]:
    """Options that Axolotl drops with a warning; removed-key reports those that it refuses."""
    if fact.effect != "ignored":
        return
    key = join_key((block, name))
    message = f"{name} was an option of FSDP1, which was removed: Axolotl {schema.short} drops it with a warning"
    yield Hit(message, key, safe(f"Delete {name}", delete_key(key)), severity=Severity.INFO)


def _unknown_severity(schema: Schema, block: str, name: str, value: Any) -> Severity | None:
    if schema.refuses_unknown(block):
        return Severity.ERROR
    harmless = block == "fsdp_config" and value == _IN_FORCE.get(name.removeprefix("fsdp_"), _IN_FORCE)
    return Severity.INFO if harmless else None


def _lists_foreign_plugin(schema: Schema, values: Mapping[str, Any]) -> bool:
    listed = values.get("plugins")
    named = [item for item in listed if isinstance(item, str)] if isinstance(listed, list) else []
    return any(not item.startswith("axolotl.") and schema.plugin_named(item) is None for item in named)


def _unknown(schema: Schema, name: str, known: frozenset[str], *, block: str = "", refused: bool = False) -> str:
    place = f" of {block}" if block else ""
    effect = "refuses it" if refused else "drops it without warning"
    found = history(f"{block}.{schema.nested_name(block, name)}" if block else name)
    if found and (when := elsewhere(found, schema.version)):
        instead = f"; use {found.successor}" if found.successor in known else ""
        return f"{name} {when}: Axolotl {schema.short} {effect}{instead}"
    top_level = schema.keys()
    if block and name in top_level:
        return f"{name} is not a key{place} and Axolotl {effect}: it belongs at the top level"
    close = _very_close(name, known) or _meant(name, known)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    return f"{name} is not a known key{place}: Axolotl {effect}{hint}"


def _moved(top_level: Collection[str], name: str, value: Any, block: str) -> Fix | None:
    """A key of the top level that was written one level too deep."""
    if name not in top_level or value is None:
        return None
    edits = (insert_key(name, value, beside=block), delete_key(join_key((block, name))))
    return unsafe("Move it to the top level", *edits)


def _meant(name: str, known: frozenset[str]) -> tuple[str, ...]:
    meant = _ELSEWHERE.get(name)
    return (meant,) if meant in known else suggest(name, known)


def _very_close(name: str, known: frozenset[str]) -> tuple[str, ...]:
    meant = _ELSEWHERE.get(name)
    return tuple(word for word in _meant(name, known) if word == meant or _resembles(name, word))


def _resembles(name: str, word: str) -> bool:
    from difflib import SequenceMatcher  # only wanted when a key is unknown

    return SequenceMatcher(None, name.lower(), word).ratio() >= _VERY_CLOSE


def _rename(
    name: str, value: Any, known: frozenset[str], siblings: Mapping[str, Any], *, block: str = ""
) -> Fix | None:
    close = _very_close(name, known)
    if len(close) != 1 or close[0] in siblings or value is None:
        return None
    prefix = (block,) if block else ()
    old, new = join_key((*prefix, name)), join_key((*prefix, close[0]))
    return unsafe(f"Rename it to {close[0]}", insert_key(new, value, beside=old), delete_key(old))


_INTEGRATIONS = "axolotl.integrations."


@rule(
    id="unknown-plugin",
    also=(Severity.WARNING,),
    bad="base_model: meta-llama/Llama-3.2-1B\nplugins:\n  - axolotl.integrations.liger.LigerKernelPlugin\n",
    good="base_model: meta-llama/Llama-3.2-1B\nplugins:\n  - axolotl.integrations.liger.LigerPlugin\n",
    beyond_trainer=(
        "Up to 0.20 a plugin whose module is missing is logged and dropped; a missing class or bare name ends the run."
    ),
)
def unknown_plugin(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`plugins` lists a plugin that Axolotl does not have.

    A class that is not in the module, or a name without a dot, ends the run with an exception. Since Axolotl 0.21 a
    module that cannot be found does too. Up to 0.20 Axolotl logs such a module, drops it and goes on training. The
    plugin's keys are then unknown and dropped too, so the memory-saving kernels and losses are not used.

    The rule checks only the names of Axolotl's own plugins and names without a dot. It ignores plugins of other
    packages.
    """
    schema = schema_of(run)
    for index, written in enumerate(run.config.get("plugins", ())):
        if schema.plugin_named(written) is not None:
            continue
        if "." not in written and not (":" in written and schema.since("0.21.0")):
            effect, severity = "a plugin name needs module and class, so this ends the run", Severity.ERROR
        elif not written.startswith(_INTEGRATIONS):
            continue
        elif _module_exists(schema, written):
            effect, severity = "the module has no such class, so this ends the run", Severity.ERROR
        elif schema.since("0.21.0"):
            effect, severity = "Axolotl cannot import it and stops", Severity.ERROR
        else:
            effect, severity = "Axolotl logs and drops it, and drops its keys", Severity.WARNING
        when = elsewhere(value_history("plugins", written), schema.version)
        close = () if when else _close_plugins(schema, written)
        hint = f"; did you mean {close[0]}?" if close else ""
        what = f"{when}, but this is {schema.short}" if when else "is not an Axolotl plugin"
        yield Hit(f"{written} {what}: {effect}{hint}", f"plugins.{index}", _use_plugin(index, close), severity=severity)


def _module_exists(schema: Schema, written: str) -> bool:
    folder = written.removeprefix(_INTEGRATIONS).split(".")[0]
    return any(plugin.startswith(f"{_INTEGRATIONS}{folder}.") for plugin in schema.known_plugins())


def _close_plugins(schema: Schema, written: str) -> tuple[str, ...]:
    """The plugin that is meant: the only one of its folder, or one whose name resembles what was written."""
    folder = written.removeprefix(_INTEGRATIONS).split(".")[0]
    at_home = tuple(plugin for plugin in schema.known_plugins() if plugin.startswith(f"{_INTEGRATIONS}{folder}."))
    by_class = {plugin.rpartition(".")[2]: plugin for plugin in schema.known_plugins()}
    return at_home or tuple(by_class[name] for name in suggest(written.rpartition(".")[2], by_class))


def _use_plugin(index: int, close: tuple[str, ...]) -> Fix | None:
    return unsafe(f"Use {close[0]}", set_key(f"plugins.{index}", close[0])) if len(close) == 1 else None
