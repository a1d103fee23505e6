"""Recorded stacks: their calls, checked, and the one worth naming.

The stacks are those of torch's memory history: frames of filename, name and line, the innermost first. Autograd's own
thread has no Python stack. What a call says about the memory's purpose is not known here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

NO_STACK = "no stack recorded"
# Files that say how, not whose: torch itself (but for its optimizers), the interpreter, and what is no Python.
_PLUMBING = ("/torch/", "<frozen")
_TELLING = ("/torch/optim/",)
_NATIVE = (".cpp", ".cu", ".h", "??")


class Call(NamedTuple):
    """One frame of a stack."""

    file: str
    name: str
    line: int


def calls_of(stack: Any) -> list[Call]:
    """The calls of a stack, the innermost first. Checked: a file from elsewhere may hold anything."""
    found = []
    for frame in stack if isinstance(stack, (list, tuple)) else ():
        if isinstance(frame, dict):
            file, name, line = frame.get("filename"), frame.get("name"), frame.get("line")
            if isinstance(file, str) and isinstance(name, str):
                found.append(Call(file.replace("\\", "/")[:400], name[:120], line if type(line) is int else 0))
    return found


def place_of(calls: list[Call]) -> str:
    """The innermost call outside torch, as `modeling_llama.py:231 forward`; where there is none, the innermost."""
    python = [call for call in calls if call.file and not call.file.endswith(_NATIVE)]
    telling = [
        call
        for call in python
        if any(part in call.file for part in _TELLING) or not any(part in call.file for part in _PLUMBING)
    ]
    for call in (telling or python)[:1]:
        return f"{call.file.rsplit('/', 1)[-1]}:{call.line} {call.name}"
    return NO_STACK
