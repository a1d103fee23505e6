"""The process that runs tools: reads calls from its standard input, writes answers to its standard output.

Python cannot interrupt a computation, so the server runs each call here and kills this process to stop one. The process
imports no SDK, which halves its start-up time.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO, Literal

from vramwise.limits.child import limit_memory
from vramwise.mcp.arguments import RefusedError, run_tool
from vramwise.mcp.tools import titled_tools
from vramwise.units import GIB

MEMORY_BYTES = 3 * GIB  # of address space: the largest answers take about 1 GiB
READY = "ready"
OUT_OF_MEMORY = 77  # the exit code that reports it to the server
# Seconds past the time limit after which the process exits: the server that should have killed it is gone.
_GRACE_SECONDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool to run, with validated arguments."""

    tool: str
    arguments: dict[str, Any]
    online: bool
    seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The outcome of a call: the tool's result, a sentence for the agent, or the traceback of a bug."""

    kind: Literal["result", "refusal", "bug"]
    value: Any


def main() -> None:
    """Report that the process is ready, then answer calls until standard input is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C also reaches the server, which decides
    calls, answers = _claim_streams()
    limit_memory(MEMORY_BYTES)
    received: SimpleQueue[Call] = SimpleQueue()
    threading.Thread(target=_receive, args=(calls, received), daemon=True).start()
    _send(answers, READY)
    while True:
        _send(answers, _answer(received.get()))


def _claim_streams() -> tuple[BinaryIO, BinaryIO]:
    """Return the server's pipes. The tools get an empty standard input, and print to standard error."""
    calls, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return calls, answers


def _receive(calls: BinaryIO, received: SimpleQueue[Call]) -> None:
    """Pass calls on. When the server is gone, the process exits at once, even during a computation."""
    try:
        while True:
            received.put(pickle.load(calls))
    finally:
        os._exit(0)


def _send(answers: BinaryIO, message: Any) -> None:
    answers.write(pickle.dumps(message))
    answers.flush()


def _answer(call: Call) -> Answer:
    tools = {tool.__name__: tool for tool in titled_tools(online=call.online)}
    # A C thread: it also ends a computation that never yields to other Python threads.
    faulthandler.dump_traceback_later(call.seconds + _GRACE_SECONDS, exit=True)
    try:
        return Answer(kind="result", value=run_tool(tools[call.tool], call.arguments))
    except RefusedError as error:
        return Answer(kind="refusal", value=str(error))
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except Exception:
        return Answer(kind="bug", value=traceback.format_exc())
    finally:
        faulthandler.cancel_dump_traceback_later()
