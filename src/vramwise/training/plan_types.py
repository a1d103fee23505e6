"""Checks values of a plan's JSON against their dataclass: a modified file is refused completely."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

# Beginning of an annotation → allowed JSON types. Nested dataclasses are checked separately.
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "int": int,
    "float": (int, float),
    "bool": bool,
    "str": str,
    "Literal": str,
    "None": type(None),
    "Mapping": dict,
    "tuple": list,
}


def typed(cls: type[Any], values: Any) -> dict[str, Any]:
    """Return the values whose names `cls` has; raises TypeError if one does not match its field's type."""
    if not isinstance(values, dict):
        raise TypeError(f"{cls.__name__} is no mapping")
    known = {one.name: str(one.type) for one in fields(cls) if one.name in values}
    for name, annotation in known.items():
        if not any(_is_of(values[name], part) for part in annotation.split(" | ")):
            raise TypeError(f"'{name}' should be {annotation}")
    return {name: values[name] for name in known}


def _is_of(value: Any, annotation: str) -> bool:
    head, _, inner = annotation.partition("[")
    if head not in _KINDS:
        return isinstance(value, dict)
    if isinstance(value, bool) and head != "bool":
        return False
    if isinstance(value, dict) and inner == "str, str]":
        return head == "Mapping" and all(isinstance(item, str) for item in value.values())
    return isinstance(value, _KINDS[head])
