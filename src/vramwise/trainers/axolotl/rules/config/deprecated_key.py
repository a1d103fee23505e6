"""deprecated-key"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from vramwise.rules.base import Hit, delete_key, insert_key, rule, safe, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.plugins import loaded_plugins
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import Edit, Fix, RunSpec, Severity


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
    topic="config",
    bad="evaluation_strategy: steps\neval_steps: 50\ngradient_checkpointing: offload\n",
    good="eval_strategy: steps\neval_steps: 50\ngradient_checkpointing: true\nactivation_offloading: true\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
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
            yield Hit(key=old, message=message, fix=safe(f"Rename it to {renamed.new}", *edits))
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
        key=old,
        message=f"{old} {value} and {new} {newer} set the same option: {effect}",
        severity=Severity.ERROR if refused else Severity.WARNING,
        fix=drop(f"Keep {new} {newer}", delete_key(old)),
    )


def _aliases(run: RunSpec) -> Iterator[Hit]:
    """`model_type` and `type_of_model` are both valid; if both are set, one has no effect."""
    values = run.config.document.values
    for short, long in schema_of(run).aliases().items():
        if values.get(short) is not None and values.get(long) is not None:
            yield Hit(
                key=long,
                message=f"{long} and {short} set the same option: {long} has no effect",
                severity=Severity.WARNING,
                fix=safe(f"Keep {short}", delete_key(long)),
            )


def _gc_steps(run: RunSpec) -> Iterator[Hit]:
    steps = run.config.get("gc_steps")
    if steps is None:
        return
    newer = [key for key in _GC if run.config.get(key) is not None]
    if newer:
        yield Hit(
            key="gc_steps",
            message=f"gc_steps {steps} is deprecated: use {' and '.join(_GC)}; {' and '.join(newer)} overrides it",
            severity=Severity.WARNING,
            fix=safe("Delete gc_steps", delete_key("gc_steps")) if "gc_collect_steps" in newer else None,
        )
        return
    written = _GC if steps > 0 else _GC[1:]
    inserts = [insert_key(key, steps, beside="gc_steps") for key in written]
    yield Hit(
        key="gc_steps",
        message=f"gc_steps {steps} is deprecated: Axolotl reads it as {' and '.join(written)}",
        fix=safe(f"Set {' and '.join(written)} instead", *inserts, delete_key("gc_steps")),
    )


def _checkpointing(run: RunSpec) -> Iterator[Hit]:
    key = "gradient_checkpointing"
    mode = {"offload": True, "offload_disk": "disk"}.get(str(run.config.get(key)))
    if mode is None:
        return
    shown = "true" if mode is True else mode
    yield Hit(
        key=key,
        message=f"{key}: {run.config.get(key)} is deprecated: use {key}: true with activation_offloading: {shown}",
        fix=safe(
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
            key="fsdp_final_state_dict_type",
            message=f"fsdp_final_state_dict_type {value} is no longer read: use fsdp_config.final_state_dict_type",
            severity=Severity.WARNING,
            fix=_move_state_dict_type(run, value),
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
        key=f"fsdp_config.{first}",
        message=f"{what} the deprecated fsdp_ prefix: the name is now {old[first]}",
        fix=safe("Drop the fsdp_ prefix", *edits),
    )


def _twice(old: str, new: str, value: Any, newer: Any) -> Hit:
    drop = safe if value == newer else unsafe
    return Hit(
        key=old,
        message=f"{old} {value} and {new} {newer} set the same option: the later one in the file wins",
        severity=Severity.WARNING,
        fix=drop(f"Keep {new} {newer}", delete_key(old)),
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
            yield Hit(key=key, message=message, severity=Severity.WARNING, fix=fix)


def _others(run: RunSpec) -> Iterator[Hit]:
    facts = schema_of(run).deprecations()
    for old, successor in _ON_THE_WAY_OUT.items():
        if run.config.get(old) and facts[old].effect == "works":
            yield Hit(key=old, message=f"{old} is deprecated: use {successor}")
    if run.config.get("flash_attn_d512") and not run.config.get("large_head_attention"):
        edits = (insert_key("large_head_attention", "auto", beside="flash_attn_d512"), delete_key("flash_attn_d512"))
        message = "flash_attn_d512 is deprecated: use large_head_attention: auto"
        yield Hit(key="flash_attn_d512", message=message, fix=safe("Set large_head_attention: auto", *edits))
    if run.objective.rl == "ipo":
        yield Hit(key="rl", message="rl: ipo is deprecated: use rl: dpo with dpo_loss_type: [ipo]")
    if run.config.get("pretraining_dataset") and not run.config.get("streaming"):
        yield Hit(
            key="pretraining_dataset",
            message="a later Axolotl will stream pretraining_dataset only with streaming: true",
            fix=safe("Set streaming: true", insert_key("streaming", True, beside="pretraining_dataset")),
        )
