"""What is said of a run's speed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log

_GRID = 1.01


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedError:
    """How far step times of measured runs were off, in per cent; `basis`: which runs those are."""

    runs: int
    median: float
    worst: float
    basis: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """One optimizer step. Tokens are those of the batches, padding included, over all GPUs.

    `parts`: seconds by kind of work. Seconds are rounded to a grid of 1 %: nothing finer is claimed.
    """

    step_seconds: float
    tokens_per_second: float
    parts: Mapping[str, float] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    error: SpeedError | None = None


def on_grid(seconds: float) -> float:
    """The nearest power of 1.01."""
    return float(_GRID ** round(log(seconds) / log(_GRID))) if seconds > 0 else 0.0
