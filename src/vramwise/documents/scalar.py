"""Writes a plain value as YAML text on one line, which YAML 1.1 reads back as exactly that value.

Knows nothing about the document, except whether the value is inside brackets (`flow`) and which quotes were used.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import yaml
from yaml.resolver import Resolver

from vramwise.documents.refusal import EditRefused
from vramwise.limits.ceilings import CONFIG_DEPTH

# Strings that need no quotes: a conservative subset of what YAML allows. A colon only inside a word (a URL).
_PLAIN = re.compile(
    r"(?:[A-Za-z0-9_./$+]|-(?=[A-Za-z0-9_./]))(?:[A-Za-z0-9_./$+@()^~=;-]|:(?=[A-Za-z0-9_./])| (?=[^ ]))*"
)
_PLAIN_IN_FLOW = re.compile(r"[A-Za-z0-9_./$+](?:[A-Za-z0-9_./$+@()^~=;-]| (?=[^ ]))*")
# A positive class: the same one with ^ takes ten times as long to compile.
_NOT_IN_SINGLE_QUOTES = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}
_RESOLVER: Any = Resolver()  # missing in PyYAML's type stubs


def plain_value(value: Any, depth: int = 0) -> Any:
    """Return the value in YAML's own types: tuples become lists, subclasses of str and mappings plain ones.

    Raises EditRefused for other types and for deep nesting.
    """
    if depth >= CONFIG_DEPTH:
        raise EditRefused(f"a value nested more than {CONFIG_DEPTH} levels deep cannot be written")
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, str):
        return "".join(value)
    if isinstance(value, (list, tuple)):
        return [plain_value(item, depth + 1) for item in value]
    if isinstance(value, Mapping):
        return {_plain_key(key): plain_value(item, depth + 1) for key, item in value.items()}
    raise EditRefused(f"a value of type {type(value).__name__} cannot be written to a config")


def _plain_key(key: Any) -> str:
    if not isinstance(key, str):
        raise EditRefused(f"the key {key!r} is not text: it cannot be written to a config")
    return "".join(key)


def inline(value: Any, *, flow: bool = False, quote: str | None = None) -> str:
    """Return the value on one line. `quote`: the quotes of the previous value, kept if possible."""
    if isinstance(value, str):
        return _string(value, flow, quote)
    if isinstance(value, list):
        return "[" + ", ".join(inline(item, flow=True) for item in value) + "]"
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{inline(key, flow=True)}: {inline(item, flow=True)}" for key, item in value.items()) + "}"
        )
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _number(value)


def _number(value: int | float) -> str:
    if isinstance(value, int):
        try:
            return str(value)
        except ValueError:
            raise EditRefused("an integer of thousands of digits cannot be written to a config") from None
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    mantissa, mark, exponent = repr(value).partition("e")
    # YAML 1.1 needs a point and a signed exponent: 5e-05 is a string, 5.0e-05 is a float.
    if "." not in mantissa:
        mantissa += ".0"
    return mantissa + mark + exponent


def _string(value: str, flow: bool, quote: str | None) -> str:
    printable = not _NOT_IN_SINGLE_QUOTES.search(value)
    if quote == '"' or not printable:
        return '"' + "".join(_escaped(character) for character in value) + '"'
    if quote != "'" and (_PLAIN_IN_FLOW if flow else _PLAIN).fullmatch(value) and _reads_as_string(value):
        return value
    return "'" + value.replace("'", "''") + "'"


def _reads_as_string(value: str) -> bool:
    tag = _RESOLVER.resolve(yaml.ScalarNode, value, (True, False))
    # Other YAML readers, and people, take 5e-5 for a number: quotes make clear that it is text.
    return bool(tag == "tag:yaml.org,2002:str") and not re.fullmatch(r"[-+.]?\d[\d_.]*([eE][-+]?\d+)?", value)


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if not _NOT_IN_SINGLE_QUOTES.search(character):
        return character
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
