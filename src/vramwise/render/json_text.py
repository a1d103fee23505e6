"""JSON text that every parser accepts: ASCII, no NaN, no lone surrogates.

Strings keep their control characters as JSON escapes, so that programs read the original value.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from vramwise.render.outward import visible

_SURROGATES = re.compile("[\ud800-\udfff]+")
# CI commands (see outward) can only occur in strings, where the character can be escaped.
_COMMAND = re.compile(r"(?<=#)#(?=\w*\[)")


def json_text(document: Any, *, indent: int | None = None) -> str:
    """Return the document as JSON text. NaN and infinities become the texts "NaN", "Infinity" and "-Infinity"."""
    text = json.dumps(_plain(document), indent=indent, allow_nan=False)
    return _COMMAND.sub(r"\\u0023", text.replace("\x7f", "\\u007f"))


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATES.sub(lambda found: visible(found[0]), value)
    if value is None or isinstance(value, int):  # bool, too
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _named(value)
    if isinstance(value, dict):
        return {_plain(key if isinstance(key, str) else _key(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return _plain(str(value))


def _named(number: float) -> str:
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _key(key: Any) -> str:
    """Return a mapping's key as JSON writes it."""
    if key is None or isinstance(key, bool):
        return json.dumps(key)
    return str(key)
