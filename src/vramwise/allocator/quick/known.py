"""What became of a pool when a stretch was played into it before: the same state and stretch lead to the same state.

The end of the mapped memory is taken only where nothing else will do. So, unless memory that can grow lies elsewhere
and was looked at, what needed no new memory needs none where that end is larger, and does the same.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable
from typing import NamedTuple

from vramwise.allocator.quick.shelf import BITS, MASK, FlatShelf

# Attempts in a row without success after which states are no longer compared.
_PATIENCE = 160


class _State(NamedTuple):
    """A shelf's free blocks but for the end, where that begins (-1: there is none), the gaps; and the end's size."""

    keys: tuple[int, ...]
    end_at: int
    gaps: tuple[tuple[int, int], ...]
    end_bytes: int


class _Result(NamedTuple):
    """The end's size before, and whether it must be the same; afterwards: free blocks, the end, what is kept."""

    end_before: int
    exact: bool
    keys: tuple[int, ...]
    end: int
    kept: tuple[int, ...]


class Known:
    """The results of one pool's part of a stretch, by the state that it found and the blocks that it frees."""

    __slots__ = ("_results", "_vain")

    def __init__(self) -> None:
        self._results: dict[Hashable, _Result] = {}
        self._vain = 0

    @property
    def worth_it(self) -> bool:
        """Whether states have come back lately."""
        return self._vain < _PATIENCE

    def again(self, shelf: FlatShelf, state: _State, outer: tuple[int, ...]) -> tuple[int, ...] | None:
        """Bring the shelf to where the same led before, and return the blocks that are kept; None if unknown."""
        found = self._results.get((state.keys, state.end_at, state.gaps, outer))
        if found is None or found.end_before > state.end_bytes or (found.exact and found.end_before != state.end_bytes):
            self._vain += 1
            return None
        self._vain = 0
        keys = list(found.keys)
        if found.end:
            insort(keys, found.end + (state.end_bytes - found.end_before << BITS))
        shelf.replace_free(keys)
        return found.kept

    def note(self, shelf: FlatShelf, state: _State, outer: tuple[int, ...], kept: tuple[int, ...]) -> None:
        """This came of it, without new memory."""
        after = state_of(shelf)
        end = after.end_bytes << BITS | after.end_at if after.end_bytes else 0
        if bool(end) == bool(state.end_bytes):
            key = (state.keys, state.end_at, state.gaps, outer)
            self._results[key] = _Result(state.end_bytes, shelf.walked, after.keys, end, kept)


def state_of(shelf: FlatShelf) -> _State:
    """The shelf's state, the end's size apart."""
    keys, order = shelf.keys, shelf.gap_order
    end = shelf.ends.get(order[-1], 0) if order else 0
    if not end or shelf.gaps[order[-1]] <= keys[-1] >> BITS:
        return _State(tuple(keys), -1, tuple([(gap, shelf.gaps[gap]) for gap in order]), 0)
    at = bisect_left(keys, end)
    gaps = tuple([(gap, shelf.gaps[gap]) for gap in order[:-1]])
    return _State((*keys[:at], *keys[at + 1 :]), end & MASK, gaps, end >> BITS)
