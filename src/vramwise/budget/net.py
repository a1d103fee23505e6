"""The last net under a reading: limits of this process on memory and CPU time, as `child` has for its processes."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from vramwise.budget import limits


class Stopped(BaseException):
    """The CPU time is over. No Exception: what handles those must not handle this one."""


@contextmanager
def net(seconds: float) -> Iterator[Callable[[], float]]:
    """Raise Stopped or MemoryError if the block takes too much, where the system can. Yields its CPU time so far."""
    started = time.process_time()
    # The limits belong to the whole process: elsewhere than in the main thread, the units alone limit the work.
    if threading.current_thread() is not threading.main_thread():
        yield lambda: time.process_time() - started
        return
    with _memory(), _processor(max(0.01, min(seconds, limits.READER_CPU_SECONDS))):
        yield lambda: time.process_time() - started


@contextmanager
def _memory() -> Iterator[None]:
    held = _data_bytes()
    if held is None:
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = held + limits.READER_MEMORY_BYTES
    if 0 <= soft <= most or 0 <= hard < most:  # a smaller limit is already set
        yield
        return
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _data_bytes() -> int | None:
    """Return the memory that counts against the limit of the kernel; None if there is no such limit."""
    if sys.platform != "linux":
        return None
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


@contextmanager
def _processor(seconds: float) -> Iterator[None]:
    if sys.platform == "win32":
        yield
        return
    earlier = signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, earlier or signal.SIG_DFL)


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stopped
