"""Reports a full disk while saving in one sentence, whatever error the library raises."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vramwise.errors import VramwiseError

_PROBE_BYTES = 256 * 1024  # a truncated file may leave a little space
_FULL = (errno.ENOSPC, errno.EDQUOT)
_WORDS = ("no space left", "os error 28", "disk quota exceeded")  # the messages of non-Python libraries


@contextmanager
def saving(output_dir: str | Path, what: str, *, probe: bool = True) -> Iterator[None]:
    """Raise VramwiseError if something cannot be saved because the disk is full.

    `probe`: also if the error itself does not say so.
    """
    try:
        yield
    except VramwiseError:
        raise
    except Exception as error:
        if not (_says_full(error) or (probe and _is_full(output_dir))):
            raise
        raise VramwiseError(
            f"{what} cannot be saved: no space left in {output_dir}; checkpoints saved before are kept: free some "
            "space, then go on with --resume"
        ) from error


def _says_full(error: BaseException) -> bool:
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in _FULL:
            return True
        if any(words in str(seen).lower() for words in _WORDS):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _is_full(folder: str | Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(_PROBE_BYTES))
    except OSError as error:
        return error.errno in _FULL
    return False
