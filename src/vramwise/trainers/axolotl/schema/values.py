"""A Document as Axolotl's schema sees it: quoted numbers become numbers, old fsdp spellings their new names.

Values of a wrong type are left out (the rule `wrong-type` reports them), so that all later code can rely on the types.
"""

from __future__ import annotations

from typing import Any

from vramwise.trainers.axolotl.schema import Schema, schema_in
from vramwise.trainers.value_types import accepts, decoded, parse_type
from vramwise.types import Asked, Config, Document, Stack

_TRUE = frozenset({"1", "true", "t", "yes", "y", "on"})
_FALSE = frozenset({"0", "false", "f", "no", "n", "off"})


def axolotl_config(document: Document, stack: Stack) -> Config:
    """Return the file's values after the schema's coercions, by their current names."""
    schema = schema_in(stack)
    values: dict[str, Any] = {}
    for key, value in document.values.items():
        if schema.reads(key) and schema.check_type(key, value) is None:
            value = _plain(value)
            block = isinstance(value, dict)
            values[key] = _coerce_block(schema, key, value) if block else coerce(schema.key_type(key), value)
    sources = _unprefix_fsdp(values)
    return Asked(document, values, sources)


def _plain(value: Any) -> Any:
    """Return the value in JSON's types, as pydantic takes it: YAML's sets become lists, its bytes text."""
    if isinstance(value, dict):
        return {decoded(key): _plain(held) for key, held in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(held) for held in value]
    return decoded(value)


def coerce(written: str | None, value: Any) -> Any:
    """Convert an accepted scalar to the declared type, as the schema does."""
    if written is None or not isinstance(value, str | int | float):
        return value
    alternatives, _ = parse_type(written)
    kinds = {one.kind for one in alternatives}
    if "str" in kinds or any(value in one.limits for one in alternatives if one.kind.endswith("one_of")):
        return value
    if kinds & {"int", "float", "number_text"}:
        return _number(kinds, value)
    return _truth(value) if "bool" in kinds else value


def _coerce_block(schema: Schema, block: str, values: dict[Any, Any]) -> dict[Any, Any]:
    """Return the values of a nested mapping, each converted to its key's type; values of a wrong type are left out."""
    coerced: dict[Any, Any] = {}
    for name, value in values.items():
        key = f"{block}.{name}"
        if schema.check_type(key, value) is None:
            inner = isinstance(value, dict)
            coerced[name] = _coerce_block(schema, key, value) if inner else coerce(schema.key_type(key), value)
    return coerced


def _number(kinds: set[str], value: str | float) -> str | float:
    if isinstance(value, float) and "float" in kinds:
        return value
    if "int" in kinds and accepts("int", value):
        return int(value.partition(".")[0]) if isinstance(value, str) else int(value)
    try:
        return float(value)
    except ValueError:  # text that another alternative accepts
        return value


def _truth(value: str | float) -> Any:
    text = str(value).lower().removesuffix(".0")
    return True if text in _TRUE else False if text in _FALSE else value


def _unprefix_fsdp(values: dict[str, Any]) -> dict[str, str]:
    """Drop the old `fsdp_` prefix inside fsdp_config; return the key in the file of each renamed value."""
    block = values.get("fsdp_config")
    if not isinstance(block, dict):
        return {}
    sources: dict[str, str] = {}
    renamed: dict[str, Any] = {}
    for key, value in block.items():
        short = str(key).removeprefix("fsdp_")
        renamed[short] = value
        if short != key:
            sources[f"fsdp_config.{short}"] = f"fsdp_config.{key}"
        else:  # both spellings: the later one wins
            sources.pop(f"fsdp_config.{short}", None)
    values["fsdp_config"] = renamed
    if values.get("fsdp_version") is None and renamed.get("version") is not None:
        values["fsdp_version"] = renamed["version"]
        sources["fsdp_version"] = sources.get("fsdp_config.version", "fsdp_config.version")
    return sources
