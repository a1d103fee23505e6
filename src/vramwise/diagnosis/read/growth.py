"""Does memory grow over the steps, and how: a steady climb is a leak, a few jumps are longer batches.

Works on any series of figures; knows neither logs nor snapshots.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

# Fewer points than this show no trend.
FEWEST = 5


def trend(sizes: Sequence[int]) -> Literal["steady", "jumps", "flat"]:
    """How a series grows.

    Steady: it rises in most of its intervals, in each quarter of its length, and no single jump makes up half of the
    growth. Jumps: it grows by a tenth or more in any other way.
    """
    if len(sizes) < FEWEST:
        return "flat"
    start, growth = sizes[0], sizes[-1] - sizes[0]
    if growth < max(1, start // 20):
        return "jumps" if max(sizes) - start >= max(1, start // 10) else "flat"
    steps = [after - before for before, after in pairwise(sizes)]
    rising = sum(step > 0 for step in steps)
    # The first interval is the optimizer's lazily made state, which every run has.
    later = steps[1:]
    largest = max(later)
    grown_later = sizes[-1] - sizes[1]
    quarter = max(1, len(later) // 4)
    everywhere = all(
        sum(later[at : at + quarter]) > 0 for at in range(0, quarter * 4, quarter) if later[at : at + quarter]
    )
    if rising >= 0.6 * len(steps) and everywhere and grown_later > 0 and largest < 0.5 * grown_later:
        return "steady"
    if grown_later < max(1, start // 20):
        return "flat"
    return "jumps"
