"""The result of a speed estimate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log

_GRID = 1.01


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedError:
    """The error of predicted step times on measured runs, in per cent. `basis`: which runs these are."""

    runs: int
    median: float
    worst: float
    basis: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """The speed of one optimizer step. Tokens include padding and cover all GPUs.

    `parts`: seconds by kind of work. `step_seconds` is rounded to a grid of 1 %, because it is not more precise.
    """

    step_seconds: float
    tokens_per_second: float
    parts: Mapping[str, float] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    error: SpeedError | None = None


def on_grid(seconds: float) -> float:
    """Round to the nearest power of 1.01. Returns 0 if `seconds` is not positive."""
    return float(_GRID ** round(log(seconds) / log(_GRID))) if seconds > 0 else 0.0
