"""Caches the result of playing a stretch into a pool: the same state and stretch lead to the same state.

The free block at the end of the mapped memory is used only if no other block fits. A stretch that needed no new memory
therefore does the same if that end block is larger. This does not hold if the search also considered another block
that can grow; in that case the size of the end must be the same.

A shelf that takes over a cached result lists its free blocks only when the list is needed.
"""

from __future__ import annotations

from typing import NamedTuple

from vramwise.allocator.quick.shelf import FlatShelf, FreeBlocks

# Consecutive failed attempts after which states are no longer compared.
_PATIENCE = 160

_Larger = tuple[tuple[int, int], ...]


class _Result(NamedTuple):
    """The result of playing a stretch.

    `end_before`: the size of the end block before. `exact`: whether the result holds for that size only. `blocks` and
    `end_bytes`: the free blocks and the size of the end block afterwards. `kept`: the blocks that stay in use.
    `larger`: tensors that got more memory than requested, and how much more.
    """

    end_before: int
    exact: bool
    blocks: FreeBlocks
    end_bytes: int
    kept: tuple[int, ...]
    larger: _Larger


class Known:
    """The results of one pool's part of a stretch, by the free blocks before it and the outer blocks that it frees."""

    __slots__ = ("_results", "_vain")

    def __init__(self) -> None:
        self._results: dict[tuple[FreeBlocks, tuple[int, ...]], _Result] = {}
        self._vain = 0

    @property
    def worth_it(self) -> bool:
        """Whether recent attempts have found a known state."""
        return self._vain < _PATIENCE

    def again(self, shelf: FlatShelf, outer: tuple[int, ...], *, counted: bool) -> tuple[int, ...] | None:
        """Apply a known result to the shelf and return the blocks that stay in use, or None if there is none.

        `outer`: the blocks that the stretch frees from before it. `counted`: whether this counts as an attempt.
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
        """Store the result of a stretch that needed no new memory.

        It is not stored if the end block appeared or disappeared.
        """
        (blocks, end_before), (after, end_bytes) = before, shelf.blocks()
        if bool(end_bytes) == bool(end_before):
            larger = tuple(shelf.larger)
            self._results[blocks, outer] = _Result(end_before, shelf.walked, after, end_bytes, kept, larger)
