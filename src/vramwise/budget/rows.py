"""A budget for data that is read row by row: bytes, rows, lines and the memory of their values."""

from __future__ import annotations

from vramwise.budget import limits
from vramwise.units import gib, mib


class Budget:
    """What may still be read of some data.

    Reading ends when it is spent; `cut` then says that something was left out.
    """

    def __init__(
        self,
        size_bytes: int = limits.DATA_BYTES,
        rows: int = limits.DATA_ROWS,
        lines: int = limits.DATA_LINES,
        values_bytes: int = limits.DATA_VALUES_BYTES,
    ) -> None:
        self.size_bytes, self.rows, self.lines, self.values_bytes = size_bytes, rows, lines, values_bytes
        self.cut = False
        self.left_out = 0  # rows too large to parse

    @property
    def spent(self) -> bool:
        """Whether nothing more may be read."""
        return self.size_bytes <= 0 or self.rows <= 0 or self.lines <= 0 or self.values_bytes <= 0

    def take(self, *, size_bytes: int = 0, lines: int = 0, rows: int = 0, values_bytes: int = 0) -> bool:
        """Charge what was read. Return False, and set `cut`, if that is more than was left."""
        self.size_bytes -= size_bytes
        self.lines -= lines
        self.rows -= rows
        self.values_bytes -= values_bytes
        if min(self.size_bytes, self.lines, self.rows, self.values_bytes) < 0:
            self.cut = True
        return not self.cut

    @property
    def bound(self) -> str:
        """The limit that ended the reading, in words."""
        if self.lines <= 0:
            return f"{limits.DATA_LINES:,} lines"
        if self.values_bytes <= 0:
            return f"{gib(limits.DATA_VALUES_BYTES)} of values"
        return f"{mib(limits.DATA_BYTES)} or {limits.DATA_ROWS:,} rows"
