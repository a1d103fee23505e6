"""A run and its card: the fastest variant that fits, and with how short rows a run would that does not."""

from __future__ import annotations

from vramwise.verbs.fit import fit
from vramwise.verbs.fitting.shorter_rows import rows_that_fit
from vramwise.verbs.fitting.ways_out import WayOut, way_out

__all__ = ["WayOut", "fit", "rows_that_fit", "way_out"]
