"""Bytes for people: MiB and GiB (1024-based), and reading sizes such as "24GB" or "29000MiB"."""

from __future__ import annotations

import re

from vramwise.errors import VramwiseError

MIB = 1024**2
GIB = 1024**3

# An exbibyte: no machine has so much.
_LARGEST = 1 << 60
_LONGEST_SHOWN = 40
_UNITS = {"b": 1, "k": 1024, "m": MIB, "g": GIB, "t": 1024**4}
_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b)?\s*$", re.IGNORECASE)


def gib(size_bytes: int) -> str:
    """`23.9 GiB`"""
    return f"{size_bytes / GIB:.1f} GiB"


def mib(size_bytes: int) -> str:
    """`512 MiB`"""
    return f"{size_bytes / MIB:.0f} MiB"


def readable(size_bytes: int) -> str:
    """`15.7 GiB` from one GiB up, else `512 MiB`."""
    return gib(size_bytes) if size_bytes >= GIB else mib(size_bytes)


def parse_size(text: str) -> int:
    """Bytes from "24GB", "24 GiB", "29000MiB", "1.5g". Card makers' GB are 1024-based, so GB and GiB mean the same."""
    match = _SIZE.match(text)
    shown = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
    if match is None or not (match[2] or match[3]):
        raise VramwiseError(f"'{shown}' is not a size: write it like 24GB or 29000MiB (units are 1024-based)")
    size = float(match[1]) * _UNITS[(match[2] or "b").lower()]
    if size > _LARGEST:
        raise VramwiseError(f"'{shown}' is more memory than there is: write it like 24GB or 29000MiB")
    return int(size)
