"""A library that decodes in C is run in a process of its own, which ends where it takes too much.

Nothing in Python stops a decoder inside of a call: a Parquet page or a tokenizer may ask for any amount of memory.
The child ends itself: by the kernel's limits where there are any (Linux, and on macOS for CPU time), and everywhere by
a thread that looks at its memory and CPU time 50 times a second. What it wrote until then is kept.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from vramwise.budget import limits

_START = "import sys, importlib; sys.path.append(sys.argv[1]); importlib.import_module(sys.argv[2]).main(*sys.argv[3:])"
_SECONDS_VARIABLE = "VRAMWISE_CHILD_SECONDS"
_left: ContextVar[list[float] | None] = ContextVar("_left", default=None)
_SPENT = 9
_LOOKS_EVERY_SECONDS = 0.02
# A child that waits, for a disk or for us, takes no CPU time.
_MOST_SECONDS = 120


@contextmanager
def shared_time() -> Iterator[None]:
    """All children that are started inside take no more CPU time together than one alone may."""
    token = _left.set([limits.CHILD_CPU_SECONDS])
    try:
        yield
    finally:
        _left.reset(token)


def child_lines(module: str, *arguments: str, given: bytes = b"") -> Iterator[bytes]:
    """The lines that `module.main(*arguments)` writes in a confined process, as they come; `given` is its input.

    They end early where the child took too much: whoever needs to know lets it write a last line. Raises OSError where
    no process can be started.
    """
    root = str(Path(__file__).parents[2])
    left = _left.get() or [limits.CHILD_CPU_SECONDS]
    if left[0] <= 0:
        return
    before = _children_seconds()
    process = subprocess.Popen(
        # -P: nothing is imported from the working folder, which may be anybody's
        [sys.executable or "python", "-P", "-c", _START, root, module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={
            **os.environ,
            "ARROW_DEFAULT_MEMORY_POOL": "system",
            "TOKENIZERS_PARALLELISM": "false",
            _SECONDS_VARIABLE: str(left[0]),
        },
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        try:
            process.stdin.write(given)
            process.stdin.close()
        except OSError:  # it has ended already
            pass
        while line := process.stdout.readline(limits.DATA_BYTES):
            yield line
    finally:
        process.kill()
        process.stdout.close()
        process.wait()
        left[0] -= _children_seconds() - before


def _children_seconds() -> float:
    """CPU time of all processes that were started here and have ended; where that is not known, the time of day."""
    times = os.times()
    return times.children_user + times.children_system if os.name == "posix" else times.elapsed


def confine(used_bytes: Callable[[], int] = lambda: 0) -> None:
    """In the child, before anything is decoded: bind this process. `used_bytes`: what a library itself counts."""
    seconds = min(limits.CHILD_CPU_SECONDS, float(os.environ.get(_SECONDS_VARIABLE) or limits.CHILD_CPU_SECONDS))
    try:
        import resource
    except ImportError:  # Windows: the thread alone
        pass
    else:
        for kind, most in (("RLIMIT_DATA", limits.CHILD_MEMORY_BYTES), ("RLIMIT_CPU", int(seconds) + 1)):
            _lower(resource, getattr(resource, kind), most)
    threading.Thread(target=_watch, args=(used_bytes, seconds), daemon=True).start()


def _lower(resource: object, kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)  # type: ignore[attr-defined]
    if hard < 0 or hard > most:
        resource.setrlimit(kind, (most, hard))  # type: ignore[attr-defined]


def _watch(used_bytes: Callable[[], int], seconds: float) -> None:
    started = time.monotonic()
    while True:
        time.sleep(_LOOKS_EVERY_SECONDS)
        over = max(_resident_bytes(), used_bytes()) > limits.CHILD_MEMORY_BYTES
        late = time.process_time() > seconds or time.monotonic() - started > _MOST_SECONDS
        if over or late:
            os._exit(_SPENT)


def _resident_bytes() -> int:
    """What this process has in memory; 0 where the system does not say."""
    if sys.platform == "darwin":
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:  # not getrusage: on Linux the peak of a new process begins with that of its parent
        pages = Path("/proc/self/statm").read_bytes().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
