"""The process that traces a model: its config.json on standard input, the trace as JSON on standard output.

Started by `facts.tracing`; `python -m vramwise.tracing config.json` runs it by hand. It has no network, and the
kernel ends it where it takes too much.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import warnings
from typing import Any

_CPU_SECONDS = 100
_MEMORY_BYTES = 12 * 1024**3  # of addresses: torch alone maps some gigabytes, and uses 0.4


def main() -> None:
    """Trace the model on standard input."""
    _confine()
    config = json.load(sys.stdin.buffer)
    out = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no part of the answer
    found = trace(config)
    with os.fdopen(out, "w") as file:
        json.dump(found, file, separators=(",", ":"))


def trace(config: dict[str, Any]) -> dict[str, Any]:
    """The trace of a config, or {"failed": why}."""
    warnings.simplefilter("ignore")
    try:
        from vramwise.tracing.document import MODES, document

        return document(config, MODES)
    except Exception as error:  # whatever foreign code raises: the reason is reported
        words = str(error).strip().splitlines()
        return {"failed": f"{type(error).__name__}: {words[0][:200] if words else ''}"}


def _confine() -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError("tracing has no network")

    socket.socket.connect = refuse  # type: ignore[method-assign]
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
