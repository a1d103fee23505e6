"""Does a figure grow steadily? A line through the last steps, and what tells a leak from a jump.

Pure arithmetic on (step, bytes) pairs. A leak climbs all through the window; a lazily made buffer is one jump in it.
Both have a steep line, so the window is also cut in quarters: each must lie above the one before by a fair share of the
whole climb. Noise is kept out by the line's own standard error.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

# A slope this many standard errors above zero is no accident of 20 noisy steps (about one window in a million).
_STANDARD_ERRORS = 6.0
_QUARTERS = 4
# Of an even climb each of the three rises between quarters is a third; this is the least share of that third.
_EVENNESS = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """A steady climb over the window."""

    bytes_per_step: float
    steps: int
    first_bytes: int
    last_bytes: int


class Growth:
    """The last `window` values of one figure, a value a step."""

    def __init__(self, window: int) -> None:
        self._values: deque[tuple[int, int]] = deque(maxlen=max(window, 2 * _QUARTERS))

    def see(self, step: int, value_bytes: int) -> Trend | None:
        """Add a value; the trend, if the full window climbs steadily."""
        if self._values and step <= self._values[-1][0]:
            self._values.clear()  # the run went back to a checkpoint
        self._values.append((step, value_bytes))
        if len(self._values) < (self._values.maxlen or 0) or value_bytes <= self._values[0][1]:
            return None
        slope, error = _line(list(self._values))
        if slope <= 0 or slope < _STANDARD_ERRORS * error or not self._climbs_evenly():
            return None
        return Trend(
            bytes_per_step=slope,
            steps=step - self._values[0][0],
            first_bytes=self._values[0][1],
            last_bytes=value_bytes,
        )

    def _climbs_evenly(self) -> bool:
        values = [value for _, value in self._values]
        size = len(values) // _QUARTERS
        means = [sum(values[at * size : (at + 1) * size]) / size for at in range(_QUARTERS)]
        rises = [after - before for before, after in pairwise(means)]
        return min(rises) >= _EVENNESS * sum(rises) / len(rises) > 0


def _line(points: list[tuple[int, int]]) -> tuple[float, float]:
    """Slope of the least-squares line and its standard error."""
    count = len(points)
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    residual = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in points)
    return slope, sqrt(residual / (count - 2) / spread)
