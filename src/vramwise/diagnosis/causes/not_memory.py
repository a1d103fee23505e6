"""Failures that have nothing to do with memory, named by what their exception says.

`not_memory.json` lists them. The first row whose pattern occurs in the message counts; one that is `own` says itself
what it means for memory. An exception that no row knows is named by its class if that class only reports a mistake in
code or data.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from vramwise.bundled import bundled_json
from vramwise.diagnosis.case import Case
from vramwise.diagnosis.evidence import Cause

_SAYS_NOT = "This is not a memory failure"


class Named(NamedTuple):
    """A failure beside memory."""

    cause: str
    says: re.Pattern[str]
    sentence: str


_NAMED = tuple(
    Named(
        row["cause"], re.compile(row["says"]), row["sentence"] if row.get("own") else f"{row['sentence']}. {_SAYS_NOT}"
    )
    for row in bundled_json("not_memory.json", __file__)
)
# Classes that report a mistake in code or data, whatever their message.
_MISTAKES = {
    "KeyError": "a key does not exist",
    "IndexError": "an index does not exist",
    "AttributeError": "an attribute does not exist",
    "TypeError": "a value has the wrong type",
    "NameError": "a name is not defined",
    "UnboundLocalError": "a variable is used before it is set",
    "AssertionError": "a check of the code failed",
    "ZeroDivisionError": "a division by zero",
    "NotImplementedError": "something is not implemented",
    "RecursionError": "a function called itself without end",
    "SyntaxError": "the code is not valid Python",
    "IndentationError": "the code is not valid Python",
    "ValueError": "a value is not acceptable",
}
_OF_MEMORY = re.compile(r"\b(?:memory|OOM|alloc\w*|malloc|VRAM)\b", re.IGNORECASE)
_LONGEST = 160


def failure_beside_memory(case: Case) -> Cause | None:
    """Return what an exception is, if it has nothing to do with memory; None if that is not known."""
    symptom = case.symptom
    if symptom.kind not in ("exception", "aftermath"):
        return None
    text = f"{symptom.quote.text} {symptom.details.get('message', '')}"
    for row in _NAMED:
        # What other processes report after a failure names only how they ended.
        if (symptom.kind == "exception" or row.cause == "native-crash") and row.says.search(text):
            return Cause(id=row.cause, sentence=row.sentence, confidence=0.85)
    name = symptom.details.get("name", "").rpartition(".")[2]
    mistake = _MISTAKES.get(name)
    if mistake is None or _OF_MEMORY.search(text):
        return None
    message = " ".join(text.rpartition(f"{name}:")[2].split())[:_LONGEST].rstrip(". ")
    said = f"{mistake} ({message})" if message else mistake
    return Cause(
        id="code-error",
        sentence=f"{name}: {said}. {_SAYS_NOT}",
        confidence=0.75,
        evidence=_last_call(case),
    )


def _last_call(case: Case) -> tuple[str, ...]:
    if not case.symptom.frames:
        return ()
    last = case.symptom.frames[-1]
    return (f"raised in {last.function} of {last.file.rpartition('/')[2]}",)
