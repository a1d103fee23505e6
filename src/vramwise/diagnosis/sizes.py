"""Sizes for a sentence."""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.units import GIB, MIB, gib, mib


def size(size_bytes: int) -> str:
    """GiB from a gibibyte up, else MiB."""
    return gib(size_bytes) if size_bytes >= GIB else mib(size_bytes)


def largest(sizes: Mapping[str, int]) -> str:
    """The three largest of some names' sizes, as `activations 5.3 GiB, weights 656 MiB`."""
    ranked = sorted(sizes.items(), key=lambda item: -item[1])[:3]
    return ", ".join(f"{name} {size(held)}" for name, held in ranked if held >= MIB)
