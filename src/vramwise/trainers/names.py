"""Suggests names for a misspelt word."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

_LONGEST_MISSPELT = 120


def suggest(word: str, among: Iterable[str], *, limit: int = 3) -> tuple[str, ...]:
    """Return the names that a misspelt word may mean, closest first; case and dashes are ignored."""
    if len(word) > _LONGEST_MISSPELT:  # nothing resembles it, and comparing long words takes time
        return ()
    return _suggest(word, frozenset(among), limit)


@lru_cache(maxsize=128)  # each entry may hold a set of all keys
def _suggest(word: str, among: frozenset[str], limit: int) -> tuple[str, ...]:
    from difflib import get_close_matches

    by_folded = {_folded(name): name for name in sorted(among)}
    return tuple(by_folded[match] for match in get_close_matches(_folded(word), by_folded, n=limit, cutoff=0.75))


def _folded(name: str) -> str:
    return name.lower().replace("-", "_").replace(" ", "_")
