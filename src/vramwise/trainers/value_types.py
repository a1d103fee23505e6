"""What values a config key takes: a small grammar of types, and whether a value is accepted under it.

    bool   int   int(ge=1,le=5)   float(gt=0)   str   str(starts=x_)   number_text   any   dict   dict[str,int]
    list   list[str]   list[str](min=1)   tuple[int,int]   one_of(a,b)   caseless_one_of(a,b)   block(name)   open(name)
    joined by |, and ? at the end where null is accepted

Acceptance follows pydantic's lax mode, as trainers that validate with pydantic use it: "8" and 8.0 are whole numbers,
"yes" is a bool, 8 is not text, choices are exact. Knows nothing of which keys exist; of block(…) and open(…) it asks a
mapping only.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache
from typing import Any

_PART = re.compile(r"(\w+)(?:\[(.*)\])?(?:\((.*)\))?$", re.DOTALL)
_WHOLE_TEXT = re.compile(r"\s*[+-]?[0-9]+(_[0-9]+)*(\.0+)?\s*")
# Longer than any real number; pydantic reads up to 4300 digits, which later arithmetic cannot handle.
LONGEST_NUMBER_TEXT = 64
_BOUNDS: dict[str, tuple[Callable[[float, float], bool], str]] = {
    "ge": (lambda value, bound: value >= bound, "at least"),
    "gt": (lambda value, bound: value > bound, "above"),
    "le": (lambda value, bound: value <= bound, "at most"),
    "lt": (lambda value, bound: value < bound, "below"),
}
_TRUE_TEXTS = {"1", "on", "t", "true", "y", "yes"}
_FALSE_TEXTS = {"0", "off", "f", "false", "n", "no"}
_MAPPINGS = ("dict", "block", "open")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueType:
    """One alternative of a type: its kind, its item types, and its limits (or choices, or the name of its block)."""

    kind: str
    holds: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()


def accepts(written: str, value: Any) -> bool:
    """Return whether a type accepts a value."""
    alternatives, optional = parse_type(written)
    if value is None and optional:
        return True
    return any(_ACCEPTS[one.kind](one, value) for one in alternatives)


@cache
def parse_type(written: str) -> tuple[tuple[ValueType, ...], bool]:
    """Return the alternatives of a type, and whether null is accepted too; raises ValueError for an invalid type."""
    optional = written.endswith("?")
    return tuple(_parse_one(part) for part in _split(written.removesuffix("?"), "|")), optional


def _parse_one(part: str) -> ValueType:
    match = _PART.match(part)
    if match is None or match[1] not in _ACCEPTS:
        raise ValueError(f"'{part}' is not a type of the grammar")
    # Choices and names are not split: block(datasets[]) has no item types.
    holds = tuple(_split(match[2], ",")) if match[2] else ("any",) if match[1] == "list" else ()
    limits = tuple(match[3].split(",")) if match[3] else ()
    return ValueType(kind=match[1], holds=holds, limits=limits)


def _split(text: str, separator: str) -> list[str]:
    """Split at separators outside all brackets."""
    parts, depth, start = [], 0, 0
    for position, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if letter == separator and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [*parts, text[start:]]


def decoded(value: Any) -> Any:
    """Return YAML's !!binary as the text that it encodes; unchanged if it is not text."""
    try:
        return value.decode("utf-8") if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return value


def _accepts_bool(_: ValueType, value: Any) -> bool:
    value = decoded(value)
    if isinstance(value, str):
        return value.lower() in _TRUE_TEXTS | _FALSE_TEXTS
    return isinstance(value, int | float) and value in (0, 1)


def _accepts_int(one: ValueType, value: Any) -> bool:
    value = decoded(value)
    if isinstance(value, str):
        if len(value) > LONGEST_NUMBER_TEXT or not _WHOLE_TEXT.fullmatch(value):
            return False
        value = int(value.partition(".")[0])
    if isinstance(value, float):
        # pydantic refuses floats beyond 64 bits, including infinities.
        return value.is_integer() and abs(value) < 2**63 and _within(one, value)
    return isinstance(value, int) and _within(one, value)


def _accepts_float(one: ValueType, value: Any) -> bool:
    value = decoded(value)
    if isinstance(value, str):
        if not _is_number_text(value):
            return False
        value = float(value)
    return isinstance(value, int | float) and _fits_float(value) and _within(one, value)


def _is_number_text(text: str) -> bool:
    return text.isascii() and _fits_float(text)


def _fits_float(value: str | float) -> bool:
    try:
        float(value)
    except (ValueError, OverflowError):
        return False
    return True


def _within(one: ValueType, value: float) -> bool:
    return all(_BOUNDS[name][0](value, bound) for name, bound in bounds(one))


def bounds(one: ValueType) -> list[tuple[str, float]]:
    """Return the limits of a number: [("ge", 1.0)]"""
    pairs = (limit.split("=", 1) for limit in one.limits)
    return [(name, float(bound)) for name, bound in pairs]


def _accepts_str(one: ValueType, value: Any) -> bool:
    starts = one.limits[0].removeprefix("starts=") if one.limits else ""
    value = decoded(value)
    return isinstance(value, str) and value.startswith(starts)


def _accepts_list(one: ValueType, value: Any) -> bool:
    if not isinstance(value, list | tuple | set):
        return False
    least = int(one.limits[0].removeprefix("min=")) if one.limits else 0
    return len(value) >= least and all(accepts(one.holds[0], item) for item in value)


def _accepts_tuple(one: ValueType, value: Any) -> bool:
    if not isinstance(value, list | tuple) or len(value) != len(one.holds):
        return False
    return all(accepts(held, item) for held, item in zip(one.holds, value, strict=True))


def _accepts_mapping(one: ValueType, value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if one.kind != "dict" or not one.holds:
        return True
    of_key, of_value = one.holds
    return all(accepts(of_key, key) and accepts(of_value, held) for key, held in value.items())


_ACCEPTS: dict[str, Callable[[ValueType, Any], bool]] = {
    "any": lambda _, value: True,
    "bool": _accepts_bool,
    "int": _accepts_int,
    "float": _accepts_float,
    "str": _accepts_str,
    "number_text": lambda _, value: isinstance(value, str) and (not value or _is_number_text(value)),
    # one_of(False) accepts a switch
    "one_of": lambda one, value: isinstance(value, str | bool) and str(value) in one.limits,
    "caseless_one_of": lambda one, value: isinstance(value, str) and value.lower() in one.limits,
    "list": _accepts_list,
    "tuple": _accepts_tuple,
    **dict.fromkeys(_MAPPINGS, _accepts_mapping),
}


def describe(written: str) -> str:
    """Describe a type in words: `auto, true or false`."""
    alternatives, _ = parse_type(written)
    words = [word for one in alternatives for word in _words(one)]
    unique = list(dict.fromkeys(words))
    return unique[0] if len(unique) == 1 else f"{', '.join(unique[:-1])} or {unique[-1]}"


def _words(one: ValueType) -> list[str]:
    if one.kind == "bool":
        return ["true", "false"]
    if one.kind in ("one_of", "caseless_one_of"):
        return [f"'{choice}'" for choice in one.limits]
    if one.kind in ("int", "float", "number_text"):
        limits = [f"{_BOUNDS[name][1]} {bound:g}" for name, bound in bounds(one)]
        return [" ".join(["a whole number" if one.kind == "int" else "a number", " and ".join(limits)]).strip()]
    if one.kind == "str":
        return [f"text that starts with '{one.limits[0].removeprefix('starts=')}'" if one.limits else "text"]
    if one.kind == "list":
        return [f"a {'non-empty ' if one.limits else ''}list of {_plural(one.holds[0])}"]
    if one.kind == "tuple":
        return [f"a list of {len(one.holds)} {_plural(one.holds[0])}"]
    if one.kind == "dict" and one.holds and one.holds[1] != "any":
        return [f"a mapping from {_plural(one.holds[0])} to {_plural(one.holds[1])}"]
    return ["a mapping"]


_PLURALS = {"any": "values", "int": "whole numbers", "float": "numbers", "str": "texts", "bool": "booleans"}


def _plural(written: str) -> str:
    alternatives, _ = parse_type(written)
    plurals = [
        _PLURALS.get(one.kind, "mappings" if one.kind in _MAPPINGS else describe(written)) for one in alternatives
    ]
    return " or ".join(dict.fromkeys(plurals))


def describe_value(value: Any) -> str:
    """Describe a value in a few words: `the number 0.1`, `the text 'maybe'`, `null`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        shown = value if len(value) <= 40 else value[:39] + "…"
        return f"the text {shown!r}"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple | set):
        return "a list" if value else "an empty list"
    return {bytes: "bytes that are not text", datetime: "a time", date: "a date"}.get(type(value), "another value")
