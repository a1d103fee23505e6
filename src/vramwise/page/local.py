"""The page's requests, answered by this machine's Python: two processes, each with one request at a time.

A search must not hold up a slider, and Python cannot interrupt a computation: so one process answers what must be quick
and one the rest, and a process is stopped if its request takes too much, or if the browser no longer waits for it.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import signal
from collections.abc import Generator
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from socket import socket
from threading import Lock
from time import monotonic

from vramwise.limits import ceilings
from vramwise.limits.child import limit_memory
from vramwise.page.answers import Answers

# A process that lives on must collect often: requests would leave a hundred megabytes behind.
_COLLECTED = (700, 10, 10)
_SECONDS = 120
_ANSWER = b'{"answer"'
# Seconds past the limit after which a process ends by itself: the server that should have stopped it is gone.
_GRACE_SECONDS = 10


class Answerer:
    """A process that answers requests one after the other, and is started anew when it was stopped."""

    def __init__(self) -> None:
        self._turn = Lock()
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def answer(self, request: bytes, client: socket) -> Generator[bytes, None, None]:
        """Yield JSON objects: `{"done", "of"}` for progress, at last `{"answer"}`.

        `request`: a line of JSON, and behind it the bytes of a snapshot. It ends early when the client is gone.
        """
        with self._turn:
            if wait([client], 0):
                return
            pipe = self._started()
            pipe.send_bytes(request)
            end, finished = monotonic() + _SECONDS, False
            try:
                while not finished:
                    ready = wait([pipe, client], max(0.0, end - monotonic()))
                    if pipe in ready:
                        said = pipe.recv_bytes()
                        finished = said.startswith(_ANSWER)
                        yield said
                    elif ready:  # the browser no longer waits
                        return
                    else:
                        yield _failure(
                            f"this took longer than {_SECONDS} seconds and was stopped: use the command line"
                        )
                        return
            except (OSError, EOFError):
                yield _failure("the answering process ended, probably for lack of memory: use the command line")
            finally:
                if not finished:
                    self.stop()

    def stop(self) -> None:
        """End the process; the next request starts another."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.join()
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    def _started(self) -> Connection:
        if self._pipe is None or self._process is None or not self._process.is_alive():
            self.stop()
            context = get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=answer_requests, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
        return self._pipe


def answer_requests(pipe: Connection) -> None:
    """Answer requests until the server is gone; runs in a process of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C also reaches the server, which decides
    limit_memory(ceilings.SERVED_MEMORY_BYTES)
    gc.set_threshold(*_COLLECTED)
    answers = Answers()
    with suppress(OSError, EOFError):
        while True:
            request, _, data = pipe.recv_bytes().partition(b"\n")
            # A C thread: it also ends a computation that never yields to other Python threads.
            faulthandler.dump_traceback_later(_SECONDS + _GRACE_SECONDS, exit=True)
            answer = answers.answer(request.decode(), lambda done, of: _tell(pipe, done, of), data or None)
            faulthandler.cancel_dump_traceback_later()
            pipe.send_bytes(json.dumps({"answer": answer}).encode())


def _tell(pipe: Connection, done: int, of: int) -> None:
    pipe.send_bytes(json.dumps({"done": done, "of": of}).encode())


def _failure(sentence: str) -> bytes:
    return json.dumps({"answer": json.dumps({"ok": False, "error": sentence, "line": None, "fatal": True})}).encode()
