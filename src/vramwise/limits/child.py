"""Run a library that decodes in C in its own process, which exits if it takes too much.

Python cannot stop a decoder inside a call: a Parquet page or a tokenizer may request any amount of memory. The child
ends itself: through kernel limits where available (Linux, and on macOS for CPU time), and everywhere through a thread
that checks its memory and CPU time 50 times a second. Its output so far is kept.
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

from vramwise.limits import ceilings

_START = "import sys, importlib; sys.path.append(sys.argv[1]); importlib.import_module(sys.argv[2]).main(*sys.argv[3:])"
_SECONDS_VARIABLE = "VRAMWISE_CHILD_SECONDS"
_left: ContextVar[list[float] | None] = ContextVar("_left", default=None)
_SPENT = 9
_LOOKS_EVERY_SECONDS = 0.02
# Wall-clock limit: a waiting child uses no CPU time.
_MOST_SECONDS = 120


@contextmanager
def shared_time() -> Iterator[None]:
    """Limit all children started inside to the CPU time of one."""
    token = _left.set([ceilings.CHILD_CPU_SECONDS])
    try:
        yield
    finally:
        _left.reset(token)


def child_lines(module: str, *arguments: str, given: bytes = b"") -> Iterator[bytes]:
    """Yield the lines that `module.main(*arguments)` writes in a confined process; `given` is its input.

    They end early if the child took too much: a caller that needs to know makes it write a last line. Raises OSError if
    no process can be started.
    """
    root = str(Path(__file__).parents[2])
    left = _left.get() or [ceilings.CHILD_CPU_SECONDS]
    if left[0] <= 0:
        return
    before = _children_seconds()
    process = subprocess.Popen(
        # -P: nothing is imported from the working folder, which is untrusted
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
        except OSError:  # it has already exited
            pass
        while line := process.stdout.readline(ceilings.DATA_BYTES):
            yield line
    finally:
        process.kill()
        process.stdout.close()
        process.wait()
        left[0] -= _children_seconds() - before


def _children_seconds() -> float:
    """Return the CPU time of all ended child processes; if unknown (Windows), the elapsed time."""
    times = os.times()
    return times.children_user + times.children_system if os.name == "posix" else times.elapsed


def confine(used_bytes: Callable[[], int] = lambda: 0) -> None:
    """Limit this process; called in the child before anything is decoded. `used_bytes`: the library's own count."""
    seconds = min(ceilings.CHILD_CPU_SECONDS, float(os.environ.get(_SECONDS_VARIABLE) or ceilings.CHILD_CPU_SECONDS))
    try:
        import resource
    except ImportError:  # Windows: only the thread
        pass
    else:
        for kind, most in (("RLIMIT_DATA", ceilings.CHILD_MEMORY_BYTES), ("RLIMIT_CPU", int(seconds) + 1)):
            _lower(resource, getattr(resource, kind), most)
    threading.Thread(target=_watch, args=(used_bytes, seconds), daemon=True).start()


def limit_memory(most: int) -> None:
    """Limit the address space of this process to that many bytes, if the platform can."""
    try:
        import resource

        _lower(resource, resource.RLIMIT_AS, most)
    except (ImportError, ValueError, OSError):
        pass


def _lower(resource: object, kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)  # type: ignore[attr-defined]
    if hard < 0 or hard > most:
        resource.setrlimit(kind, (most, hard))  # type: ignore[attr-defined]


def _watch(used_bytes: Callable[[], int], seconds: float) -> None:
    started = time.monotonic()
    while True:
        time.sleep(_LOOKS_EVERY_SECONDS)
        over = max(_resident_bytes(), used_bytes()) > ceilings.CHILD_MEMORY_BYTES
        late = time.process_time() > seconds or time.monotonic() - started > _MOST_SECONDS
        if over or late:
            os._exit(_SPENT)


def _resident_bytes() -> int:
    """Return the resident memory of this process (on macOS its peak); 0 if unknown."""
    if sys.platform == "darwin":
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:  # not getrusage: on Linux the peak of a new process begins with that of its parent
        pages = Path("/proc/self/statm").read_bytes().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
