"""The last steps of one figure during a run: a moving window that `vramwise.growth` judges."""

from __future__ import annotations

from collections import deque

from vramwise.growth import QUARTERS, Trend, steady_climb


class Growth:
    """The last `window` values of one figure, one per step."""

    def __init__(self, window: int) -> None:
        self._values: deque[tuple[int, int]] = deque(maxlen=max(window, 2 * QUARTERS))

    def see(self, step: int, value_bytes: int) -> Trend | None:
        """Add a value; return the trend if the full window climbs steadily, else None."""
        if self._values and step <= self._values[-1][0]:
            self._values.clear()  # the run went back to a checkpoint
        self._values.append((step, value_bytes))
        if len(self._values) < (self._values.maxlen or 0):
            return None
        return steady_climb(tuple(self._values))
