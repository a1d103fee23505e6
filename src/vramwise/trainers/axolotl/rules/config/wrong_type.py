"""wrong-type"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vramwise.rules.base import Hit, delete_key, insert_key, rule, safe, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import Schema, schema_of
from vramwise.trainers.value_types import parse_type
from vramwise.types import Fix, RunSpec, Severity

_STRATEGIES = ("eval_strategy", "evaluation_strategy", "save_strategy")


@rule(
    id="wrong-type",
    severity=Severity.ERROR,
    unusable=True,
    topic="config",
    bad="base_model: meta-llama/Llama-3.2-1B\nwarmup_steps: 0.1\nlora_modules_to_save: lm_head\n",
    good="base_model: meta-llama/Llama-3.2-1B\nwarmup_ratio: 0.1\nlora_modules_to_save:\n  - lm_head\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A value has a type that its key does not accept.

    Axolotl's schema refuses the file: it contains text instead of a number, a fraction instead of a whole number, a
    mapping instead of a list, or null where a value is required. Values that Axolotl converts itself are not reported:
    "8" and 8.0 are whole numbers, "yes" is true, a quoted number is a number.

    In YAML 1.1 an unquoted `no`, `off` or `yes` is a boolean. Axolotl therefore refuses `eval_strategy: no`: write
    `eval_strategy: "no"`.
    """
    values, schema = run.config.document.values, schema_of(run)
    for key, sentence in schema.type_errors(values):
        found = _value(values, key)
        message, fix = _remedy(run, schema, key, found)
        yield Hit(key=key, message=f"{sentence}{message}: Axolotl refuses the file", fix=fix)


def _value(values: dict[str, Any], key: str) -> Any:
    found: Any = values
    for part in key.split("."):
        found = found[part]
    return found


def _remedy(run: RunSpec, schema: Schema, key: str, found: Any) -> tuple[str, Fix | None]:
    """A hint for the message and a fix, if it is clear what is meant."""
    kinds = {one.kind for one in parse_type(schema.key_type(key) or "any")[0]}
    if key in _STRATEGIES and found is False:
        return ' (an unquoted no is false; write "no")', safe('Write "no" in quotes', set_key(key, "no"))
    if key == "warmup_steps" and isinstance(found, float) and 0 < found < 1 and "warmup_ratio" not in run.config:
        edits = (insert_key("warmup_ratio", found, beside=key), delete_key(key))
        return " (use warmup_ratio for a share of the run)", unsafe(f"Set warmup_ratio: {found}", *edits)
    if kinds == {"list"} and isinstance(found, str):
        return "", safe("Make it a list", set_key(key, [found]))
    if "str" in kinds and isinstance(found, int | float) and not isinstance(found, bool):
        return " (quote it)", safe("Quote it", set_key(key, str(found)))
    if key == "tokens" and isinstance(found, dict) and "special_tokens" not in run.config:
        edits = (insert_key("special_tokens", found, beside=key), delete_key(key))
        return " (use special_tokens for named tokens)", unsafe("Rename it to special_tokens", *edits)
    if found is None and key in schema.defaults():
        return f" (default: {schema.defaults()[key]})", safe(f"Delete {key}", delete_key(key))
    return "", None
