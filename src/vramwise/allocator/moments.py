"""Chooses the moments of a run to draw: the highs and lows of many short stretches.

A stretch ends where a phase ends. The more visible changes it has, the shorter it is; an allocation that moves the
curve by less than a pixel counts for little.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

# A change smaller than the peak divided by this is invisible, even in a tall chart.
PIXELS = 2000
# This many invisible events weigh as much as one visible event.
INVISIBLE_PER_VISIBLE = 50


def choose_moments(
    allocated: array[int], reserved: array[int], phase_starts: Sequence[int], stretches: int
) -> list[int]:
    """Return the chosen positions in ascending order, the first and the last included.

    In each stretch, these are where the most and the least are allocated and where the most is reserved.
    """
    if not allocated:
        return []
    chosen = {0, len(allocated) - 1}
    # with more phases than stretches, phases are too narrow to be visible
    bounds = phase_starts if len(phase_starts) <= stretches else ()
    for start, end in _stretches(allocated, reserved, bounds, stretches):
        part = allocated[start:end]
        highest = start + part.index(max(part))
        chosen.add(highest)
        chosen.add(start + part.index(min(part)))
        most_reserved = max(reserved[start:end])
        if reserved[highest] < most_reserved:
            at_most = (index for index in range(start, end) if reserved[index] == most_reserved)
            chosen.add(max(at_most, key=allocated.__getitem__))
    return sorted(chosen)


def _stretches(
    allocated: array[int], reserved: array[int], bounds: Sequence[int], count: int
) -> Iterator[tuple[int, int]]:
    """Cut the run into about `count` stretches of equal weight, and at the bounds."""
    weights = _weights(allocated, reserved)
    enough = max(1, -(-sum(weights) // count))
    starts = frozenset(bounds)
    start = weight = 0
    for index, own in enumerate(weights):
        if index > start and (weight + own > enough or index in starts):
            yield start, index
            start, weight = index, 0
        weight += own
    yield start, len(weights)


def _weights(allocated: array[int], reserved: array[int]) -> list[int]:
    visible = max(reserved) // PIXELS + 1
    weights = []
    before_allocated = before_reserved = 0
    for now_allocated, now_reserved in zip(allocated, reserved, strict=True):
        seen = abs(now_allocated - before_allocated) >= visible or now_reserved != before_reserved
        weights.append(INVISIBLE_PER_VISIBLE if seen else 1)
        before_allocated, before_reserved = now_allocated, now_reserved
    return weights
