"""The process that traces a model. It reads {"config", "code"} from stdin and writes the trace as JSON to stdout.

`code` is the model's folder if the user allows the model's own code to run, otherwise null. `facts.tracing` starts
this process; `sandbox` restricts what it may do.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

from vramwise.models.recorder.sandbox import conceal_others, confine, lock


def main() -> None:
    """Read a config from stdin, trace its model and write the trace to stdout."""
    confine()
    asked = json.load(sys.stdin.buffer)
    out = os.dup(1)
    os.dup2(2, 1)  # send anything that libraries print to stderr
    found = trace(asked["config"], None if asked["code"] is None else Path(asked["code"]))
    with os.fdopen(out, "w") as file:
        json.dump(found, file, separators=(",", ":"))


def trace(config: dict[str, Any], code: Path | None) -> dict[str, Any]:
    """Return the trace of a config, or {"failed": reason}.

    With `code`, the process is locked permanently before the model's code is imported. It is kept from other processes
    before torch starts threads.
    """
    warnings.simplefilter("ignore")
    try:
        if code is not None and sys.platform.startswith("linux"):
            conceal_others()
        from vramwise.models.recorder.document import MODES, document
        from vramwise.models.recorder.passes import warm_up

        if code is not None:
            warm_up()
            lock()
        return document(config, MODES, code)
    except Exception as error:  # foreign code may raise anything: report the reason
        return {"failed": reason(error)}


def reason(error: Exception) -> str:
    """Return the reason why a model could not be traced."""
    name, words = type(error).__name__, str(error).strip().splitlines()
    if name == "Differs":
        return "its operations depend on the length, as those of scans and chunks that are written as loops do"
    if name in ("DynamicOutputShapeException", "DataDependentOutputException"):
        return "sizes in its code depend on values, as on how many tokens an expert gets"
    if name == "Lost":
        return words[0]
    return f"{name}: {words[0][:200] if words else ''}"
