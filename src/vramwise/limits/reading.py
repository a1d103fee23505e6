"""Read untrusted data within a budget: a file never beyond a limit, rows until the budget is spent.

A file is never read from a device, and never waits for a pipe.
"""

from __future__ import annotations

import os
import stat
import zlib
from pathlib import Path

from vramwise.errors import VramwiseError
from vramwise.limits import ceilings
from vramwise.units import gib, mib


def read_file(path: str | Path, most_bytes: int, what: str) -> bytes:
    """Return the bytes of a regular file of at most `most_bytes`; `what` it should be is for messages.

    Raises VramwiseError, with the path, for anything else.
    """
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise VramwiseError(f"{path} is a device or a pipe: save {what} to a file first")
            if found.st_size > most_bytes:
                raise VramwiseError(f"{path} is larger than {mib(most_bytes)}: too large for {what}")
            # No more than its size above: the file may grow while it is read.
            return file.read(found.st_size)
    except OSError as error:
        raise VramwiseError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # a NUL in the name
        raise VramwiseError(f"{str(path)!r} cannot be read: {error}") from None


def unzipped(data: bytes, most_bytes: int, what: str) -> bytes:
    """Return the bytes decompressed if they are gzip.

    Raises VramwiseError if they are damaged or more than `most_bytes`.
    """
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        machine = zlib.decompressobj(wbits=31)
        text = machine.decompress(data, most_bytes)
    except zlib.error as error:
        raise VramwiseError(f"damaged gzip data ({error})") from None
    if machine.unconsumed_tail:
        raise VramwiseError(f"it unpacks to more than {mib(most_bytes)}: too large for {what}")
    if not machine.eof:
        raise VramwiseError("the gzip data is truncated")
    return text


def _open_at_once(path: str, flags: int) -> int:
    """Open without blocking: a pipe without a writer would wait forever."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


class Budget:
    """What may still be read of some data.

    Reading ends when it is spent; `cut` then says that something was left out.
    """

    def __init__(
        self,
        size_bytes: int = ceilings.DATA_BYTES,
        rows: int = ceilings.DATA_ROWS,
        lines: int = ceilings.DATA_LINES,
        values_bytes: int = ceilings.DATA_VALUES_BYTES,
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
            return f"{ceilings.DATA_LINES:,} lines"
        if self.values_bytes <= 0:
            return f"{gib(ceilings.DATA_VALUES_BYTES)} of values"
        return f"{mib(ceilings.DATA_BYTES)} or {ceilings.DATA_ROWS:,} rows"
