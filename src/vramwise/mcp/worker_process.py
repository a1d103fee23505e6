"""The server's side of the worker: starts the process, sends it one call at a time, kills it to stop a call."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio
from mcp.server.mcpserver.exceptions import ToolError

from vramwise.mcp.worker import MEMORY_BYTES, OUT_OF_MEMORY, READY, Answer, Call
from vramwise.units import readable

_START_SECONDS = 120  # imports take about one; a busy machine may need many
# -P: packages come from the server's own path (see _start), not from the current folder.
COMMAND = (sys.executable, "-P", "-c", "from vramwise.mcp.worker import main; main()")
_R = TypeVar("_R")


class Worker:
    """Runs tools in a separate process, each for at most `seconds`. The process starts with the first call.

    Calls wait for their turn: a prediction takes a core and some hundred megabytes, and agents make many calls at once.
    """

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._turn = anyio.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._kill: Callable[[], object] = lambda: None

    async def call(self, tool: str, arguments: dict[str, Any], *, online: bool) -> Any:
        """Return the tool's result. Raises ToolError if the arguments are refused or the call exceeds a limit.

        If the caller is cancelled (by the client, or because it is gone), the process is killed.
        """
        call = Call(tool=tool, arguments=arguments, online=online, seconds=self._seconds)
        async with self._turn:
            process = await self._running()
            answer: Answer = await self._blocking(partial(_exchange, process, call), self._seconds, self._expired())
        if answer.kind == "refusal":
            raise ToolError(answer.value)
        if answer.kind == "bug":
            raise RuntimeError(f"in the worker process:\n{answer.value}")
        return answer.value

    async def _running(self) -> subprocess.Popen[bytes]:
        """Return the process; start it if there is none."""
        process = self._process
        if process is None or process.poll() is not None:
            process = self._process = _start()
            self._kill = weakref.finalize(self, _end, process)
            slow = f"the worker process did not start within {_START_SECONDS} s: the machine may be overloaded"
            await self._blocking(partial(_await_start, process), _START_SECONDS, slow)
        return process

    async def _blocking(self, work: Callable[[], _R], seconds: int, expired: str) -> _R:
        """Run `work` in a thread and return its result.

        If it is abandoned, the process is killed, which ends the thread.
        """
        try:
            with anyio.fail_after(seconds):
                done: _R = await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
                return done
        except TimeoutError as error:
            self.stop()
            raise ToolError(expired) from error
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill the process; the next call starts another."""
        self._kill()
        self._process = None

    def _expired(self) -> str:
        return (
            f"the call took longer than {self._seconds} s and was stopped. Next: call again with a smaller config or "
            "log, or ask the user to start the server with a larger --time-limit."
        )


def _start() -> subprocess.Popen[bytes]:
    # The server's own sys.path, so that the process finds the same packages.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(path).absolute()) for path in sys.path)}
    return subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):  # buffered data has no reader any more
            if pipe is not None:
                pipe.close()


def _await_start(process: subprocess.Popen[bytes]) -> None:
    if _receive(process) != READY:
        raise ToolError(f"the worker process did not start (exit code {process.wait()}): see the server's log")


def _exchange(process: subprocess.Popen[bytes], call: Call) -> Answer:
    """Return the answer to a call. Raises ToolError with the reason if the process ended instead."""
    assert process.stdin is not None
    with suppress(OSError):  # if the process has ended, its exit code says why
        process.stdin.write(pickle.dumps(call))
        process.stdin.flush()
    answer = _receive(process)
    if isinstance(answer, Answer):
        return answer
    code = process.wait()
    why = f"the process that ran the call ended unexpectedly (exit code {code})"
    if code == OUT_OF_MEMORY:
        why = f"the call needs more than {readable(MEMORY_BYTES)} of memory and was stopped"
    raise ToolError(f"{why}. Next: call again with a smaller config or log.")


def _receive(process: subprocess.Popen[bytes]) -> Any:
    """Return the next message of the process, None if it has ended."""
    assert process.stdout is not None
    try:
        return pickle.load(process.stdout)
    except (EOFError, pickle.UnpicklingError):
        return None
