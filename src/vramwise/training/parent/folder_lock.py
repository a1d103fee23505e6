"""One run per folder: a lock that lives as long as any process of the run, however it ends.

The worker inherits the open file, so a run whose supervisor was killed still holds it: its worker finishes its step,
saves and ends. The next run waits for that. On systems without such locks (Windows), nothing is locked.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vramwise.errors import VramwiseError
from vramwise.limits import parse_json

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = ".vramwise.lock"
_SECONDS = 120  # to wait for a worker; a step and its checkpoint may take that long
_PAUSE = 0.1
_LOOKS = 5
_MOST_BYTES = 1000


@contextmanager
def locked(output_dir: str | Path) -> Iterator[int | None]:
    """Hold the folder and yield the file to pass to children. Raises VramwiseError while another run holds it."""
    if fcntl is None:
        yield None
        return
    try:
        Path(output_dir).mkdir(parents=True, exist_ok=True)
        file = os.open(Path(output_dir) / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise VramwiseError(f"output_dir {output_dir} cannot be written to: {error.strerror}") from error
    try:
        try:
            free = _taken(file) or (_outlived(file) and _waited(file, output_dir))
        except OSError:  # a file system without locks
            yield None
            return
        if not free:
            raise VramwiseError(f"{output_dir} is in use by another run: wait for its end, or stop it")
        with suppress(OSError):  # without it, the next run does not wait
            os.ftruncate(file, 0)
            os.pwrite(
                file, json.dumps({"pid": os.getpid(), "host": platform.node(), "born": _born(os.getpid())}).encode(), 0
            )
        yield file
    finally:
        os.close(file)


def wait_for_worker(output_dir: str | Path) -> None:
    """Wait until the worker of a killed run has saved and ended, so that its checkpoint is found."""
    if fcntl is None:
        return
    try:
        file = os.open(Path(output_dir) / LOCK_FILE, os.O_RDWR)
    except OSError:
        return
    with suppress(OSError):
        try:
            if not _taken(file) and _outlived(file):
                _waited(file, output_dir)
        finally:
            os.close(file)


def _taken(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _waited(file: int, output_dir: str | Path) -> bool:
    """Return whether the lock became free in time."""
    said = (
        f"{output_dir} is in use by the worker of a run that was killed: waiting up to {_SECONDS} s until it has saved"
    )
    sys.stderr.write(f"{said}\n")
    sys.stderr.flush()
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        if _taken(file):
            return True
        time.sleep(_PAUSE)
    return False


def _outlived(file: int) -> bool:
    """Return whether the process that took the lock is gone, so that only its worker still holds it."""
    for _ in range(_LOOKS):  # a process that was killed a moment ago may still be there
        if _is_gone(file):
            return True
        time.sleep(_PAUSE)
    return False


def _is_gone(file: int) -> bool:
    try:
        holder = parse_json(os.pread(file, _MOST_BYTES, 0).decode("utf-8", "replace"))
        pid = holder["pid"]
        if holder["host"] != platform.node() or type(pid) is not int or pid < 1:
            return False
    except (ValueError, TypeError, KeyError):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # a process of another user has that number by now, or a holder that is not ours
        return False
    return bool(_born(pid) != holder.get("born"))


def _born(pid: int) -> str | None:
    """Return when a living process started, as Linux counts it; None for a dead one that is not yet reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        return "unknown"
