"""One run per folder: a lock that lives as long as any process of the run, however it ends.

The worker inherits the open file, so a run whose supervisor was killed still holds it. On systems without such locks
(Windows), nothing is locked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vramwise.errors import VramwiseError

LOCK_FILE = ".vramwise.lock"


@contextmanager
def locked(output_dir: str | Path) -> Iterator[int | None]:
    """Hold the folder and yield the file to pass to children. Raises VramwiseError while another run holds it."""
    try:
        import fcntl
    except ImportError:
        yield None
        return
    try:
        Path(output_dir).mkdir(parents=True, exist_ok=True)
        file = os.open(Path(output_dir) / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise VramwiseError(f"output_dir {output_dir} cannot be written to: {error.strerror}") from error
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise VramwiseError(f"{output_dir} is in use by another run: wait for its end, or stop it") from None
        except OSError:  # a file system without locks
            yield None
            return
        yield file
    finally:
        os.close(file)
