"""Evaluates string methods on known values."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vramwise.documents.python.combine import size
from vramwise.documents.python.results import Missing, Value

TEXT_METHODS = frozenset(
    {
        *("lower", "upper", "strip", "lstrip", "rstrip", "removeprefix", "removesuffix", "split", "rsplit", "replace"),
        *("format", "startswith", "endswith", "join", "title", "capitalize"),
    }
)
# A huge width in a format would create an arbitrarily long text.
_WIDTH = re.compile(r":[^{}]*\d{4}")
_LONGEST = 1000


def text_method(text: Value, method: str, given: Sequence[Value | Missing]) -> Value | None:
    """Return the result of a string method; None if an argument is unknown or the result would be too long."""
    values = [one.value for one in given if isinstance(one, Value)]
    if method not in TEXT_METHODS or len(values) < len(given):
        return None
    if size([text.value, values]) > _LONGEST or (method == "format" and _WIDTH.search(text.value)):
        return None
    try:
        made = getattr(text.value, method)(*values)
    except Exception:
        return None
    return Value(value=made, notes=text.notes) if len(str(made)) < 100_000 else None
