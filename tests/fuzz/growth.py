"""Whether a process keeps growing: its memory after n, 2n and 4n executions.

Caches that fill up stop growing; one large input is one step. What climbs in both intervals, and by more than a set
amount, is kept for every input.
"""

import contextlib
import ctypes
import gc
import resource
from pathlib import Path

from tests.fuzz.bench import Failure

FIRST = 100
# More than the bounded caches of a prediction take up while they fill: scripts went from 79 to 171 MiB, and stayed there.
MOST_BYTES = 96 * 2**20


class Growth:
    """Resident memory, measured whenever the number of executions has doubled."""

    def __init__(self, measure=None):
        self._measure = measure or resident_bytes
        self._next = FIRST
        self.sizes = []

    def after(self, executions):
        """Measure if it is time."""
        if executions == self._next:
            self.sizes.append(self._measure())
            self._next *= 2

    def failure(self, target, start):
        """The failure that steady growth is, else None."""
        for place in range(len(self.sizes) - 2):
            first, second, third = self.sizes[place : place + 3]
            if third - first > MOST_BYTES and second - first > MOST_BYTES / 6 and third - second > MOST_BYTES / 3:
                count = FIRST * 2**place
                shown = ", ".join(f"{size / 2**20:.0f} MiB" for size in (first, second, third))
                detail = f"after {count}, {2 * count} and {4 * count} executions from index {start}: {shown}"
                return Failure("growth", target, detail)
        return None


def resident_bytes():
    """Resident memory of this process, without garbage and freed pages."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # not glibc: the figure is a little larger
        ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
