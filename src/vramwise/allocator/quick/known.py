"""What became of a pool when a stretch was played into it before: the same state and stretch lead to the same state.

The end of the mapped memory is taken only where nothing else will do. So, unless memory that can grow lies elsewhere
and was looked at, what needed no new memory needs none where that end is larger, and does the same.

A shelf that follows what is known has no list of its free blocks; it is made when somebody needs it.
"""

from __future__ import annotations

from typing import NamedTuple

from vramwise.allocator.quick.shelf import FlatShelf, FreeBlocks

# Attempts in a row without success after which states are no longer compared.
_PATIENCE = 160

_Larger = tuple[tuple[int, int], ...]


class _Result(NamedTuple):
    """The end's size before, and whether it must be the same; afterwards: free blocks, the end's size, what is kept,
    what got more than it asked for."""

    end_before: int
    exact: bool
    blocks: FreeBlocks
    end_bytes: int
    kept: tuple[int, ...]
    larger: _Larger


class Known:
    """The results of one pool's part of a stretch, by the state that it found and the blocks that it frees."""

    __slots__ = ("_results", "_vain")

    def __init__(self) -> None:
        self._results: dict[tuple[FreeBlocks, tuple[int, ...]], _Result] = {}
        self._vain = 0

    @property
    def worth_it(self) -> bool:
        """Whether states have come back lately."""
        return self._vain < _PATIENCE

    def again(self, shelf: FlatShelf, outer: tuple[int, ...], *, counted: bool) -> tuple[int, ...] | None:
        """Bring the shelf to where the same led before, and return the blocks that are kept; None if unknown.

        `counted`: as an attempt, with or without success.
        """
        blocks, end_bytes = shelf.blocks()
        found = self._results.get((blocks, outer))
        if found is None or found.end_before > end_bytes or (found.exact and found.end_before != end_bytes):
            self._vain += counted
            return None
        self._vain = 0 if counted else self._vain
        shelf.follow(found.blocks, found.end_bytes + end_bytes - found.end_before)
        shelf.larger += found.larger
        return found.kept

    def note(
        self, shelf: FlatShelf, before: tuple[FreeBlocks, int], outer: tuple[int, ...], kept: tuple[int, ...]
    ) -> None:
        """This came of it, without new memory."""
        (blocks, end_before), (after, end_bytes) = before, shelf.blocks()
        if bool(end_bytes) == bool(end_before):
            larger = tuple(shelf.larger)
            self._results[blocks, outer] = _Result(end_before, shelf.walked, after, end_bytes, kept, larger)
