"""A Document as Axolotl's schema sees it: numbers in quotes become numbers, old fsdp spellings their new names.

Values of a wrong type are left out (the rule `wrong-type` reports them), so that everything behind this point may trust
the types.
"""

from __future__ import annotations

from typing import Any

from vramwise.facts import axolotl as facts
from vramwise.facts.value_types import parse_type
from vramwise.types import Config, Document

_TRUE = frozenset({"1", "true", "t", "yes", "y", "on"})
_FALSE = frozenset({"0", "false", "f", "no", "n", "off"})


def axolotl_config(document: Document) -> Config:
    """The file's values after the schema's coercions, addressable by today's names."""
    values: dict[str, Any] = {}
    for key, value in document.values.items():
        if facts.check_type(key, value) is None:
            values[key] = coerce(facts.key_type(key), value)
    sources = _unprefix_fsdp(values)
    return Config(document, values, sources)


def coerce(written: str | None, value: Any) -> Any:
    """What the schema makes of a scalar (known to be accepted) whose written type differs from the declared one."""
    if written is None or not isinstance(value, str | int | float):
        return value
    alternatives, _ = parse_type(written)
    kinds = {one.kind for one in alternatives}
    if "str" in kinds or any(value in one.limits for one in alternatives if one.kind.endswith("one_of")):
        return value
    if "int" in kinds:
        return _whole(value)
    if kinds & {"float", "number_text"}:
        return float(value)
    return _truth(value) if "bool" in kinds else value


def _whole(value: str | float) -> int | float:
    if isinstance(value, str):
        return int(value.strip().partition(".")[0])
    return int(value) if float(value).is_integer() else value


def _truth(value: str | float) -> Any:
    text = str(value).lower().removesuffix(".0")
    return True if text in _TRUE else False if text in _FALSE else value


def _unprefix_fsdp(values: dict[str, Any]) -> dict[str, str]:
    """Drop the old `fsdp_` prefix inside fsdp_config; says under which key of the file each renamed value stands."""
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
