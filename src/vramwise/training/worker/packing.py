"""Sample packing: first-fit-decreasing of samples into rows of equal capacity. Arithmetic only: no torch.

Positions restart in every sample of a row, and from the restarts the attention (a varlen kernel, or transformers'
block-diagonal mask for sdpa, eager and flex) keeps samples apart; `isolation.py` tests that on the loaded model.
"""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.errors import VramwiseError


def pack(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Return bins of sample numbers with at most `capacity` tokens each.

    Longest samples come first, each into the first bin with room. First-fit-decreasing needs at most 11/9 of the
    optimal number of bins, plus one. Deterministic: equal lengths keep their order. Raises VramwiseError if a sample is
    longer than `capacity`.
    """
    order = sorted(range(len(lengths)), key=lambda number: (-lengths[number], number))
    if order and lengths[order[0]] > capacity:
        raise VramwiseError(f"a sample of {lengths[order[0]]} tokens does not fit a row of {capacity}")
    room = _Room(len(lengths), capacity)
    bins: list[list[int]] = []
    for number in order:
        at = room.take(lengths[number])
        if at == len(bins):
            bins.append([])
        bins[at].append(number)
    return bins


class _Room:
    """The free space of each bin as a tree of maxima: the first bin with room is found in log(n) steps."""

    def __init__(self, bins: int, capacity: int) -> None:
        self._leaves = 1 << max(0, (bins - 1).bit_length())
        self._most = [capacity] * (2 * self._leaves)

    def take(self, length: int) -> int:
        """Put a sample into the first bin that has room; return the bin's number."""
        node = 1
        while node < self._leaves:
            node = 2 * node if self._most[2 * node] >= length else 2 * node + 1
        self._most[node] -= length
        found = node - self._leaves
        while node > 1:
            node //= 2
            self._most[node] = max(self._most[2 * node], self._most[2 * node + 1])
        return found
