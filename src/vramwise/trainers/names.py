"""Suggests names for a misspelt word."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

_LONGEST_MISSPELT = 120


def suggest(word: str, among: Iterable[str], *, limit: int = 3) -> tuple[str, ...]:
    """Return the names that a misspelt word may mean, closest first; case and dashes are ignored."""
    if len(word) > _LONGEST_MISSPELT:  # nothing resembles it, and comparing long words takes time
        return ()
    return _suggest(word, _shared(frozenset(among)), limit)


@lru_cache(maxsize=16)
def _shared(names: frozenset[str]) -> frozenset[str]:
    """Return one set for all equal ones, so that many words hold the same."""
    return names


@lru_cache(maxsize=8192)  # a search asks for the same words with each of its edits
def _suggest(word: str, among: frozenset[str], limit: int) -> tuple[str, ...]:
    from difflib import get_close_matches

    folded = _by_folded(among)
    return tuple(folded[match] for match in get_close_matches(_folded(word), folded, n=limit, cutoff=0.75))


@lru_cache(maxsize=16)
def _by_folded(names: frozenset[str]) -> dict[str, str]:
    return {_folded(name): name for name in sorted(names)}


def _folded(name: str) -> str:
    return name.lower().replace("-", "_").replace(" ", "_")
