"""The process that traces a model: {"config", "code"} on standard input, the trace as JSON on standard output.

`code`: the folder of a model whose own code the user lets run, else null. Started by `facts.tracing`; `sandbox` says
what the process may not do.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

from vramwise.tracing.sandbox import confine, lock


def main() -> None:
    """Trace the model on standard input."""
    confine()
    asked = json.load(sys.stdin.buffer)
    out = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no part of the answer
    found = trace(asked["config"], None if asked["code"] is None else Path(asked["code"]))
    with os.fdopen(out, "w") as file:
        json.dump(found, file, separators=(",", ":"))


def trace(config: dict[str, Any], code: Path | None) -> dict[str, Any]:
    """The trace of a config, or {"failed": why}. With `code`, the process is locked for good before it is imported."""
    warnings.simplefilter("ignore")
    try:
        from vramwise.tracing.document import MODES, document
        from vramwise.tracing.passes import warm_up

        if code is not None:
            warm_up()
            lock()
        return document(config, MODES, code)
    except Exception as error:  # whatever foreign code raises: the reason is reported
        return {"failed": reason(error)}


def reason(error: Exception) -> str:
    """Why a model could not be traced."""
    name, words = type(error).__name__, str(error).strip().splitlines()
    if name == "Differs":
        return "its operations depend on the length, as those of scans and chunks that are written as loops do"
    if name in ("DynamicOutputShapeException", "DataDependentOutputException"):
        return "sizes in its code depend on values, as on how many tokens an expert gets"
    if name == "Lost":
        return words[0]
    return f"{name}: {words[0][:200] if words else ''}"
