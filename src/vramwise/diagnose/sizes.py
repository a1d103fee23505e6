"""A size for a sentence."""

from __future__ import annotations

from vramwise.units import GIB, gib, mib


def size(size_bytes: int) -> str:
    """GiB from a gibibyte up, else MiB."""
    return gib(size_bytes) if size_bytes >= GIB else mib(size_bytes)
