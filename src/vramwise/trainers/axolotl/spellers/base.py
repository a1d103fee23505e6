"""What a speller is, and the one for a field that has a key of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vramwise.trainers.axolotl.remedies import put
from vramwise.types import Edit, RunSpec

Speller = Callable[[RunSpec, Any], tuple[Edit, ...] | None]


def by_key(name: str) -> Speller:
    """A field that has a key of its own."""

    def speller(run: RunSpec, value: Any) -> tuple[Edit, ...]:
        return (put(run, name, value),)

    return speller
