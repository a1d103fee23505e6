"""How far predictions were off on recorded runs: written by bench/accuracy.py, shown with every prediction."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from vramwise.facts.bundled import bundled_json


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedError:
    """Errors in per cent of the measured peak, over the recorded runs."""

    runs: int
    allocated_median: float
    allocated_worst: float
    reserved_median: float
    reserved_worst: float
    basis: str

    def __str__(self) -> str:
        return (
            f"reserved within {self.reserved_median:.1f} % (median) and {self.reserved_worst:.1f} % (worst), "
            f"allocated {self.allocated_median:.1f} % and {self.allocated_worst:.1f} %, on {self.runs} {self.basis}"
        )


@cache
def expected_error() -> ExpectedError:
    """The record that ships with this version."""
    return ExpectedError(**bundled_json("accuracy.json"))
