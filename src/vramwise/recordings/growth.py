"""Decides whether a series of figures grows steadily, as a memory leak does.

Used by the guard of a run and for its log afterwards. It is pure arithmetic on (step, bytes) pairs. A leak climbs
through the whole window; a lazily allocated buffer or a longer batch is a single jump. Both give a steep line, so the
window is also cut into quarters: each must be above the one before by a fair share of the whole climb. The standard
error of the line filters out noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from typing import Literal

# Fewer figures, or fewer steps that kept memory, show no trend.
FEWEST = 5
# A slope this many standard errors above zero is very unlikely by chance in 20 noisy steps (about one window in a
# million).
_STANDARD_ERRORS = 6.0
QUARTERS = 4
# In an even climb, each of the three rises between quarters is a third of it; this is the smallest accepted share of
# that third.
_EVENNESS = 0.4
# A series must change in this share of its intervals; otherwise it is a high-water mark that only jumps.
_MOST = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """A steady climb over a window."""

    bytes_per_step: float
    steps: int
    first_bytes: int
    last_bytes: int


def steady_climb(points: Sequence[tuple[int, int]]) -> Trend | None:
    """Return the climb of (step, bytes) pairs, one per step in rising order; None if they do not climb steadily."""
    if len(points) < QUARTERS or points[-1][1] <= points[0][1]:
        return None
    slope, error = _line(points)
    if slope <= 0 or slope < _STANDARD_ERRORS * error or not _climbs_evenly([value for _, value in points]):
        return None
    (first_step, first), (last_step, last) = points[0], points[-1]
    return Trend(bytes_per_step=slope, steps=last_step - first_step, first_bytes=first, last_bytes=last)


def shape(sizes: Sequence[int]) -> Literal["steady", "jumps", "flat"]:
    """Classify how a series of figures grows from its first to its last.

    "steady": it climbs, by at least a twentieth. "jumps": it grows in any other way. The first interval is ignored,
    because every run allocates optimizer state there. Logs often show the highest mark so far; that climbs too with
    batches of varying length, but does not move between the longer ones.
    """
    if len(sizes) < FEWEST:
        return "flat"
    start, growth = sizes[0], sizes[-1] - sizes[0]
    little = max(1, start // 20)
    if growth < little:
        return "jumps" if max(sizes) - start >= max(1, start // 10) else "flat"
    changes = sum(before != after for before, after in pairwise(sizes))
    if changes >= _MOST * (len(sizes) - 1) and steady_climb(list(enumerate(sizes))[1:]) is not None:
        return "steady"
    return "flat" if sizes[-1] - sizes[1] < little else "jumps"


def _climbs_evenly(values: Sequence[int]) -> bool:
    size = len(values) // QUARTERS
    means = [sum(values[at * size : (at + 1) * size]) / size for at in range(QUARTERS)]
    rises = [after - before for before, after in pairwise(means)]
    return min(rises) >= _EVENNESS * sum(rises) / len(rises) > 0


def _line(points: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """Slope of the least-squares line and its standard error."""
    count = len(points)
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    residual = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in points)
    return slope, sqrt(residual / (count - 2) / spread)
