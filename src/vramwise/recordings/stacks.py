"""Recorded stacks: their calls, checked, and the most informative one.

The stacks are those of torch's memory history: frames of filename, name and line, innermost first. Autograd's own
thread has no Python stack. Does not know what a call says about the memory's purpose.
"""

from __future__ import annotations

from typing import Any, NamedTuple

NO_STACK = "no stack recorded"
# Files that are not informative: torch itself (except its optimizers), the interpreter, and non-Python code.
_PLUMBING = ("/torch/", "<frozen")
_TELLING = ("/torch/optim/",)
_NATIVE = (".cpp", ".cu", ".h", "??")


# Deeper than the calls of any program.
_MOST_CALLS = 1000


class Call(NamedTuple):
    """One frame of a stack."""

    file: str
    name: str
    line: int


def calls_of(stack: Any) -> list[Call]:
    """Return the calls of a stack, innermost first. Malformed frames are skipped, long stacks and texts cut off."""
    found = []
    for frame in stack[:_MOST_CALLS] if isinstance(stack, (list, tuple)) else ():
        if isinstance(frame, dict):
            file, name, line = frame.get("filename"), frame.get("name"), frame.get("line")
            if isinstance(file, str) and isinstance(name, str):
                file = _text(file, 400).replace("\\", "/")
                found.append(Call(file, _text(name, 120), line if type(line) is int else 0))
    return found


def _text(value: str, longest: int) -> str:
    """Truncate a text; lone surrogates, which cannot be written, become question marks."""
    return value[:longest].encode("utf-8", "replace").decode("utf-8")


def place_of(calls: list[Call]) -> str:
    """Return the innermost call outside torch, as `modeling_llama.py:231 forward`; otherwise the innermost."""
    python = [call for call in calls if call.file and not call.file.endswith(_NATIVE)]
    telling = [
        call
        for call in python
        if any(part in call.file for part in _TELLING) or not any(part in call.file for part in _PLUMBING)
    ]
    for call in (telling or python)[:1]:
        return f"{call.file.rsplit('/', 1)[-1]}:{call.line} {call.name}"
    return NO_STACK
