"""One child process: started in its own session, receives our signals, and ends when we are killed.

A signal to us is forwarded to the worker itself (torchrun would give its workers 30 seconds and then kill them, perhaps
in the middle of a checkpoint). A second signal goes to everything we started. Knows nothing about training.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from vramwise.units import whole_number

FORWARDED = (signal.SIGINT, signal.SIGTERM)
PIDS = ".pids"
_PR_SET_PDEATHSIG = 1


class Signals:
    """The signals that were received while children ran."""

    def __init__(self, pid_folder: Path, say: Callable[[str], None] | None = None) -> None:
        self.received: int | None = None
        self._say = say
        self._child: subprocess.Popen[bytes] | None = None
        self._pid_folder = pid_folder

    @contextmanager
    def forwarded(self) -> Iterator[None]:
        """Forward signals inside the block."""
        before = {number: signal.signal(number, self._take) for number in FORWARDED}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def run(self, command: Sequence[str], env: Mapping[str, str], keep_open: Sequence[int] = ()) -> int:
        """Run a child to its end; return the exit code, or 128 + number if a signal ended it."""
        if self.received is not None:
            return 128 + self.received
        clear_pids(self._pid_folder)
        self._child = subprocess.Popen(
            command,
            env=dict(env),
            start_new_session=True,
            pass_fds=tuple(keep_open),
            preexec_fn=_die_with(os.getpid()) if sys.platform == "linux" else None,
        )
        if self.received is not None:  # it was received while the child was starting
            self._pass_on(self._child, self.received, [])
        code = self._child.wait()
        self._child = None
        clear_pids(self._pid_folder)
        return code if code >= 0 else 128 - code

    def _take(self, number: int, _frame: FrameType | None) -> None:
        again = self.received is not None
        self.received = number
        if self._say is not None:
            self._say(
                "stopping at once" if again else "stopping: this step is finished and saved; once more stops at once"
            )
        child = self._child
        if child is None or child.poll() is not None:
            return
        self._pass_on(child, number, [] if again else announced_pids(self._pid_folder))

    def _pass_on(self, child: subprocess.Popen[bytes], number: int, workers: Sequence[int]) -> None:
        """Send a signal to the workers, or to the child's whole group if none has announced itself."""
        for pid in workers:
            with suppress(ProcessLookupError, PermissionError):  # gone, or not ours
                os.kill(pid, number)
        if not workers:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, number)


def announce(output_dir: str | Path) -> None:
    """In a worker: record this process id, so that signals reach it and not only its launcher."""
    folder = Path(output_dir) / PIDS
    with suppress(OSError):  # without it, signals go to the whole group
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(os.getpid())).touch()


def announced_pids(folder: Path) -> list[int]:
    """Return the workers that announced themselves: empty files named like a process id. Other files are ignored."""
    if folder.is_symlink() or not folder.is_dir():
        return []
    with suppress(OSError), os.scandir(folder) as entries:
        return [int(entry.name) for entry in entries if entry.is_file(follow_symlinks=False) and _is_pid(entry.name)]
    return []


def _is_pid(name: str) -> bool:
    return str(whole_number(name)) == name != "0"  # 0 would be our own group


def clear_pids(folder: Path) -> None:
    """Forget the workers of an earlier attempt."""
    for pid in announced_pids(folder):
        with suppress(OSError):
            (folder / str(pid)).unlink()
    with suppress(OSError):
        folder.rmdir()


def _die_with(parent: int) -> Callable[[], None]:
    """Return a function for the child before exec: when we are killed, the child gets SIGTERM, saves and ends."""
    libc = ctypes.CDLL(None, use_errno=True)  # looked up here: the child should do as little as possible

    def ask() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(128 + signal.SIGTERM)

    return ask
