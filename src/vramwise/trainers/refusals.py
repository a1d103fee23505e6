"""What a trainer refuses, as data: keys to blame, each with a sentence."""

from __future__ import annotations

from collections.abc import Iterator

Refusal = tuple[str, str]


def refused_where(*cases: tuple[object, str, str]) -> Iterator[Refusal]:
    """The key and the sentence of every case whose condition holds."""
    return ((key, sentence) for applies, key, sentence in cases if applies)
