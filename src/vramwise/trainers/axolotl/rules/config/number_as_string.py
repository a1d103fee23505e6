"""number-as-string"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vramwise.documents.scalar import inline
from vramwise.rules.base import Hit, rule, safe, set_key
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import Schema, schema_of
from vramwise.trainers.value_types import parse_type
from vramwise.types import RunSpec, Severity, join_key

_NUMBERS = {"int", "float", "number_text"}
# Mappings that are passed on unchanged: text in them is not converted to numbers.
_HANDED_ON = ("lr_scheduler_kwargs",)


@rule(
    id="number-as-string",
    severity=Severity.INFO,
    also=(Severity.WARNING,),
    topic="config",
    bad="base_model: meta-llama/Llama-3.2-1B\nlearning_rate: 5e-5\n",
    good="base_model: meta-llama/Llama-3.2-1B\nlearning_rate: 5.0e-05\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A number that YAML reads as text.

    Axolotl reads YAML 1.1, where a number with an exponent needs a dot and a sign: `5e-5` is text, `5.0e-05` is a
    number. Axolotl converts the text for keys of its schema, so these work. Other tools that read the file get text,
    and so do mappings that Axolotl passes on unchanged (`lr_scheduler_kwargs`): there the scheduler stops with a
    TypeError.

    The fix writes the same number so that every reader sees a number. Values that Axolotl converts are reported only
    with `--pedantic`, or if you name the rule with `--select`.
    """
    values, schema = run.config.document.values, schema_of(run)
    for key, value in values.items():
        if key in _HANDED_ON and isinstance(value, dict):
            yield from _handed_on(key, value)
        elif isinstance(value, dict) and f"block({key})" in (schema.key_type(key) or ""):
            for name, held in value.items():
                if isinstance(name, str):
                    yield from _typed(schema, (key, name), held)
        else:
            yield from _typed(schema, (key,), value)


def _typed(schema: Schema, path: tuple[str, ...], value: Any) -> Iterator[Hit]:
    key = join_key(path)
    kind = schema.key_type(key)
    number = _number(value)
    if number is None or kind is None or not _takes_only_numbers(kind) or schema.check_type(key, value):
        return
    yield Hit(
        key=key,
        message=f"{path[-1]} {value!r} is text in YAML 1.1, not a number: Axolotl converts it, other tools may not",
        fix=safe(f"Write it as a number: {inline(number)}", set_key(key, number)),
        pedantic=True,
    )


def _handed_on(key: str, block: dict[Any, Any]) -> Iterator[Hit]:
    for name, value in block.items():
        number = _number(value)
        if isinstance(name, str) and number is not None:
            path = join_key((key, name))
            yield Hit(
                key=path,
                message=f"{name} {value!r} is text in YAML 1.1, not a number, and {key} is passed on unconverted",
                severity=Severity.WARNING,
                fix=safe(f"Write it as a number: {inline(number)}", set_key(path, number)),
            )


def _takes_only_numbers(kind: str) -> bool:
    alternatives, _ = parse_type(kind)
    return {one.kind for one in alternatives} <= _NUMBERS


def _number(value: Any) -> int | float | None:
    if not isinstance(value, str):
        return None
    for read in (int, float):
        try:
            return read(value)
        except ValueError:
            continue
    return None
