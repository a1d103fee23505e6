"""The bytes of a recording's file, plain or gzipped: never more than a recording may have, and never from a device.

A device or a pipe has no size and may have no end, so only files are read. What the bytes mean is `reader`'s business.
"""

from __future__ import annotations

import os
import stat
import zlib
from pathlib import Path

from vramwise.errors import VramwiseError
from vramwise.units import MIB, mib

MAX_FILE_BYTES = 256 * MIB


def read_file(path: Path) -> bytes:
    """The file's bytes as they are."""
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise VramwiseError(
                    f"{path} is a device or a pipe, not a file: save the recording to a file, and name that"
                )
            if found.st_size > MAX_FILE_BYTES:
                raise VramwiseError(f"{path} is larger than {mib(MAX_FILE_BYTES)}: too large for a recording")
            # No more than it had a moment ago: it may grow while it is read.
            return file.read(found.st_size)
    except OSError as error:
        raise VramwiseError(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError as error:  # a NUL in the name
        raise VramwiseError(f"cannot read {str(path)!r}: {error}") from None


def unpacked(data: bytes, name: str) -> bytes:
    """The bytes without the gzip around them, if there is any; `name` is for messages."""
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        machine = zlib.decompressobj(wbits=31)
        text = machine.decompress(data, MAX_FILE_BYTES)
    except zlib.error as error:
        raise VramwiseError(f"{name}: damaged gzip data ({error})") from None
    if machine.unconsumed_tail:
        raise VramwiseError(f"{name} unpacks to more than {mib(MAX_FILE_BYTES)}: too large for a recording")
    if not machine.eof:
        raise VramwiseError(f"{name}: the gzip data is cut off")
    return text


def _open_at_once(path: str, flags: int) -> int:
    """Opening a pipe that nobody writes to would wait for ever."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
