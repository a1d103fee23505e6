"""Parse JSON within a memory limit, estimated before any value is created."""

from __future__ import annotations

import json
from typing import Any

from vramwise.errors import ConfigError
from vramwise.limits import ceilings
from vramwise.units import mib

# CPython's memory for an object, an entry of it, a list, one more value with its place in a list, and half a text.
_COSTS = ((b"{", 80), (b":", 150), (b"[", 104), (b",", 44), (b'"', 16))
# No byte costs more than a colon in a text of wide characters.
_MOST_A_BYTE = 160
# UTF-8 characters that need four bytes each in Python's text begin with none of these bytes.
_NOT_WIDE = bytes(range(0xF0))


class OverBudget(ConfigError):  # noqa: N818 (it reads as what happened)
    """A text within its byte limit that is nested too deeply or would take too much memory as values."""


class TooDeep(ValueError):  # noqa: N818 (it reads as what is the matter)
    """A text that is nested deeper than Python's parser allows."""


def json_memory_bytes(data: bytes) -> int:
    """Return an upper bound of the memory for parsing a JSON text: its bytes, its text and its values.

    Marks inside strings count too, so it overestimates; counting takes a tenth of the parsing time.
    """
    return len(data) * (1 + 2 * _width(data)) + sum(cost * data.count(mark) for mark, cost in _COSTS)


def _width(data: bytes) -> int:
    """Return the bytes that a character of this text may take in Python: 1, 2 or 4, by the widest."""
    if data.isascii():
        return 4 if b"\\u" in data else 1
    return 4 if b"\\u" in data or data.translate(None, _NOT_WIDE) else 2


def parse_json(data: bytes | str, needed_bytes: int | None = None) -> Any:
    """Return the value of a JSON text. Raises ValueError if it is not JSON, OverBudget if it needs too much memory.

    `needed_bytes`: the result of `json_memory_bytes`, if the caller already has it.
    """
    if needed_bytes is None:
        needed_bytes = (
            0
            if _is_short(data)
            else json_memory_bytes(data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass"))
        )
    if needed_bytes > ceilings.MEMORY_BYTES:
        most = mib(ceilings.MEMORY_BYTES)
        raise OverBudget(f"its values would take {mib(needed_bytes)} of memory; the limit is {most}")
    try:
        return json.loads(data)
    except RecursionError:
        raise TooDeep("it is nested too deeply") from None


def _is_short(data: bytes | str) -> bool:
    """Return whether a text is within the limit whatever it contains: counting costs more than parsing a line."""
    return len(data) * (1 if isinstance(data, bytes) else 4) * _MOST_A_BYTE < ceilings.MEMORY_BYTES
