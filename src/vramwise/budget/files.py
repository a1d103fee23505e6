"""Read an untrusted file: never more than a limit, never from a device, never waiting for a pipe."""

from __future__ import annotations

import os
import stat
import zlib
from pathlib import Path

from vramwise.errors import VramwiseError
from vramwise.units import mib


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
