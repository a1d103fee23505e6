"""unknown-key"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from vramwise.rules.base import Hit, delete_key, insert_key, rule, safe, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import Deprecation, Schema, elsewhere, history, schema_of, suggest
from vramwise.types import Fix, RunSpec, Severity, join_key

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
    topic="config",
    bad="base_model: meta-llama/Llama-3.2-1B\ngradient_acumulation_steps: 8\nmicro_batch_size: 1\n",
    good="base_model: meta-llama/Llama-3.2-1B\ngradient_accumulation_steps: 8\nmicro_batch_size: 1\n",
    beyond_trainer="Axolotl drops unknown keys without warning.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
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
            yield from _inside(schema, key, value)
        elif key in schema.deprecations():
            yield from _removed(schema, key, value)
        elif not key.startswith(_HOLDERS):
            fix, idle = _fix(key, value, known, values), _is_idle(key, value)
            meant = weak is None and not idle and _is_setting(fix, run)
            yield Hit(
                key=join_key((key,)),
                message=_message(schema, key, known),
                severity=Severity.INFO if idle else Severity.ERROR if meant else weak,
                fix=fix,
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


def _removed(schema: Schema, key: str, value: Any) -> Iterator[Hit]:
    """A removed key that is off or empty counts as unknown; if it is on, removed-key reports it."""
    fact = schema.deprecations()[key]
    if fact.effect == "refused" and not fact.refuses(value):
        message = f"{key} is no longer a key of Axolotl {schema.short}, but it is off: dropping it changes nothing"
        fix = safe(f"Delete {key}", delete_key(key))
        yield Hit(key=key, message=message, severity=Severity.INFO, fix=fix, pedantic=True)


def _inside(schema: Schema, key: str, value: Any) -> Iterator[Hit]:
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
        severity = _severity(schema, key, name, held)
        message = _message(schema, name, known, block=key, refused=severity is Severity.ERROR)
        if severity is Severity.INFO:
            message += f"; {held} applies anyway"
        fix = _moved(top_level, name, held, key) or _fix(name, held, known, value, block=key)
        in_force = severity is Severity.INFO
        place = join_key((key, name))
        yield Hit(key=place, message=message, severity=severity, fix=fix, pedantic=in_force)


def _removed_inside(schema: Schema, block: str, name: str, fact: Deprecation) -> Iterator[Hit]:
    """Options that Axolotl drops with a warning; removed-key reports those that it refuses."""
    if fact.effect != "ignored":
        return
    key = join_key((block, name))
    message = f"{name} was an option of FSDP1, which was removed: Axolotl {schema.short} drops it with a warning"
    yield Hit(key=key, message=message, severity=Severity.INFO, fix=safe(f"Delete {name}", delete_key(key)))


def _severity(schema: Schema, block: str, name: str, value: Any) -> Severity | None:
    if schema.refuses_unknown(block):
        return Severity.ERROR
    harmless = block == "fsdp_config" and value == _IN_FORCE.get(name.removeprefix("fsdp_"), _IN_FORCE)
    return Severity.INFO if harmless else None


def _lists_foreign_plugin(schema: Schema, values: Mapping[str, Any]) -> bool:
    listed = values.get("plugins")
    named = [item for item in listed if isinstance(item, str)] if isinstance(listed, list) else []
    return any(not item.startswith("axolotl.") and schema.plugin_named(item) is None for item in named)


def _message(schema: Schema, name: str, known: frozenset[str], *, block: str = "", refused: bool = False) -> str:
    place = f" of {block}" if block else ""
    effect = "refuses it" if refused else "drops it without warning"
    found = history(f"{block}.{schema.nested_name(block, name)}" if block else name)
    if found and (when := elsewhere(found, schema.version)):
        instead = f"; use {found.successor}" if found.successor in known else ""
        return f"{name} {when}: Axolotl {schema.short} {effect}{instead}"
    top_level = schema.keys()
    if block and name in top_level:
        return f"{name} is not a key{place} and Axolotl {effect}: it belongs at the top level"
    close = _very_close(name, known) or _close(name, known)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    return f"{name} is not a known key{place}: Axolotl {effect}{hint}"


def _moved(top_level: Collection[str], name: str, value: Any, block: str) -> Fix | None:
    """A key of the top level that was written one level too deep."""
    if name not in top_level or value is None:
        return None
    edits = (insert_key(name, value, beside=block), delete_key(join_key((block, name))))
    return unsafe("Move it to the top level", *edits)


def _close(name: str, known: frozenset[str]) -> tuple[str, ...]:
    meant = _ELSEWHERE.get(name)
    return (meant,) if meant in known else suggest(name, known)


def _very_close(name: str, known: frozenset[str]) -> tuple[str, ...]:
    meant = _ELSEWHERE.get(name)
    return tuple(word for word in _close(name, known) if word == meant or _resembles(name, word))


def _resembles(name: str, word: str) -> bool:
    from difflib import SequenceMatcher  # only wanted when a key is unknown

    return SequenceMatcher(None, name.lower(), word).ratio() >= _VERY_CLOSE


def _fix(name: str, value: Any, known: frozenset[str], siblings: Mapping[str, Any], *, block: str = "") -> Fix | None:
    close = _very_close(name, known)
    if len(close) != 1 or close[0] in siblings or value is None:
        return None
    prefix = (block,) if block else ()
    old, new = join_key((*prefix, name)), join_key((*prefix, close[0]))
    return unsafe(f"Rename it to {close[0]}", insert_key(new, value, beside=old), delete_key(old))
