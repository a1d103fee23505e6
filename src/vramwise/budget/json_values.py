"""JSON under a bound: what the values of a text would take is counted before any of them is made."""

from __future__ import annotations

import json
from typing import Any

from vramwise.budget import limits
from vramwise.errors import ConfigError
from vramwise.units import mib

# What CPython takes for an object, an entry of it, a list, one more value with its place in a list, and half a text.
_COSTS = ((b"{", 80), (b":", 150), (b"[", 104), (b",", 44), (b'"', 16))
# No byte costs more than a colon in a text of wide characters.
_MOST_A_BYTE = 160
# UTF-8 begins a character with one of these where Python's text takes four bytes for each; all others do not.
_NOT_WIDE = bytes(range(0xF0))


class OverBudget(ConfigError):  # noqa: N818 (it reads as what happened)
    """A text past a bound: it is within its bytes, but nests too deep or would take too much memory as values."""


class TooDeep(ValueError):  # noqa: N818 (it reads as what is the matter)
    """A text that nests deeper than Python follows."""


def json_memory_bytes(data: bytes) -> int:
    """At most so much memory holds a JSON text while it is parsed: its bytes, its text and its values.

    Marks inside of strings count too, so this is rather too much; counting takes a tenth of the parsing.
    """
    return len(data) * (1 + 2 * _width(data)) + sum(cost * data.count(mark) for mark, cost in _COSTS)


def _width(data: bytes) -> int:
    """Bytes that a character of this text may take in Python: 1, 2 or 4, by the widest."""
    if data.isascii():
        return 4 if b"\\u" in data else 1
    return 4 if b"\\u" in data or data.translate(None, _NOT_WIDE) else 2


def parse_json(data: bytes | str, needed_bytes: int | None = None) -> Any:
    """The value of a JSON text; ValueError where it is not JSON, OverBudget where it would take too much memory.

    `needed_bytes`: what `json_memory_bytes` said, where the caller asked already.
    """
    if needed_bytes is None:
        needed_bytes = (
            0
            if _is_short(data)
            else json_memory_bytes(data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass"))
        )
    if needed_bytes > limits.MEMORY_BYTES:
        most = mib(limits.MEMORY_BYTES)
        raise OverBudget(f"its values would take {mib(needed_bytes)} of memory; the limit is {most}")
    try:
        return json.loads(data)
    except RecursionError:
        raise TooDeep("it is nested too deeply") from None


def _is_short(data: bytes | str) -> bool:
    """Whether a text is within the bound whatever is in it: counting costs more than parsing a line does."""
    return len(data) * (1 if isinstance(data, bytes) else 4) * _MOST_A_BYTE < limits.MEMORY_BYTES
