"""A run and its card: the fastest variant that fits, and with how short rows a run would that does not."""

from __future__ import annotations

from vramwise.fitting.fit import fit
from vramwise.fitting.rows import remedies, rows_that_fit

__all__ = ["fit", "remedies", "rows_that_fit"]
