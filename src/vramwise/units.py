"""Formats bytes for people (MiB and GiB, 1024-based) and parses sizes such as "24GB" or "29000MiB".

Every size is formatted here, so that a figure reads the same in all verbs and formats.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from vramwise.errors import VramwiseError

MIB = 1024**2
GIB = 1024**3

# One exbibyte, more than any machine has.
_LARGEST = 1 << 60
_LONGEST_SHOWN = 40
_MOST_DIGITS = 12
_UNITS = {"b": 1, "k": 1024, "m": MIB, "g": GIB, "t": 1024**4}
_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b)?\s*$", re.IGNORECASE)


def whole_number(text: str) -> int | None:
    """Return the number that ASCII digits represent; None for other text or too many digits.

    `str.isdigit` accepts "²", which `int` rejects, as it rejects thousands of digits.
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) < _MOST_DIGITS else None


def gib(size_bytes: int) -> str:
    """Format bytes as `23.9 GiB`."""
    return f"{size_bytes / GIB:.1f} GiB"


def mib(size_bytes: int) -> str:
    """Format bytes as `512 MiB`."""
    return f"{size_bytes / MIB:.0f} MiB"


def size_word(size_bytes: int) -> str:
    """Format bytes as `29000MiB`, the form that options accept."""
    return f"{size_bytes // MIB}MiB"


def readable(size_bytes: int) -> str:
    """Format bytes as `15.7 GiB` from one GiB up, else as `512 MiB`; small non-zero sizes are `< 1 MiB`."""
    if abs(size_bytes) >= GIB:
        return gib(size_bytes)
    return mib(size_bytes) if size_bytes == 0 or abs(size_bytes) >= MIB // 2 else "< 1 MiB"


def gib_change(size_bytes: int) -> str:
    """Format the change of a figure: `+1.5 GiB`, `-0.3 GiB`."""
    return f"{size_bytes / GIB:+.1f} GiB"


def a_step(bytes_per_step: float) -> str:
    """Format a growth rate, more precisely than a size: `1.25 GiB`, `3.2 MiB`, `512 B`."""
    if bytes_per_step >= GIB:
        return f"{bytes_per_step / GIB:.2f} GiB"
    return f"{bytes_per_step / MIB:.1f} MiB" if bytes_per_step >= MIB else f"{bytes_per_step:.0f} B"


def largest(sizes: Mapping[str, int]) -> str:
    """Format the three largest sizes: `activations 5.3 GiB, weights 656 MiB`."""
    ranked = sorted(sizes.items(), key=lambda item: -item[1])[:3]
    return ", ".join(f"{name} {readable(held)}" for name, held in ranked if held >= MIB)


def parse_size(text: str) -> int:
    """Return the bytes of "24GB", "24 GiB", "29000MiB" or "1.5g"; raises VramwiseError for any other text.

    Card makers' GB are 1024-based, so GB and GiB mean the same.
    """
    match = _SIZE.match(text)
    shown = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
    if match is None or not (match[2] or match[3]):
        raise VramwiseError(f"'{shown}' is not a size: write it like 24GB or 29000MiB (units are 1024-based)")
    size = float(match[1]) * _UNITS[(match[2] or "b").lower()]
    if size > _LARGEST:
        raise VramwiseError(f"'{shown}' is too large for a memory size: write it like 24GB or 29000MiB")
    return int(size)
