"""What a line reports: the most specific of the known texts, otherwise an unknown exception.

A message may be wrapped, or begin on the line after its exception's name: if the line alone says nothing, it is joined
with the following lines and examined again.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from vramwise.diagnosis.read.dtype_texts import two_dtypes
from vramwise.diagnosis.read.folded import unfolded
from vramwise.diagnosis.read.texts import Found, find_failures

_EXCEPTION = re.compile(
    r"^(?:E {2,12})?((?:[a-zA-Z_]\w{0,60}\.){0,8}(?:_?[A-Z]\w{0,60}(?:Error|Exception|Interrupt|Exit)|Exception))"
    r"(?:\([A-Z]\w{0,60}\))?(?::\s|:?$)"
)
# IPython writes the exception's name above the traceback, and again below it.
_HEADER = re.compile(r"^\W{0,8}((?:_?[A-Z]\w{0,60}(?:Error|Exception)))\s{2,200}Traceback \(most recent call last\)")
# How far into the next line a message may begin, after a line with only the exception's name.
_INDENT = 80


def reported(text: str, following: Callable[[], str]) -> Found | None:
    """Return the failure that a line reports, or None. `following` returns the text after it."""
    found = _in_tables(text)
    match = _EXCEPTION.match(text)
    if match is None or (found is not None and found.kind != "aftermath"):
        return found
    little = found
    nameless = match.end() >= len(text.rstrip())
    whole = tuple(dict.fromkeys(unfolded(text, following())))
    for candidate in whole:
        found = _in_tables(candidate)
        if found is not None and found.kind != "aftermath" and found.start < len(text) + (_INDENT if nameless else 0):
            return found
    for candidate in (text, *whole):
        dtypes = two_dtypes(candidate[match.end() :])
        if dtypes:
            return Found("mixed-operands", 0, dtypes)
    return little or Found("exception", 0, {"name": match[1]})


def announced(text: str) -> Found | None:
    """Return the exception that IPython names above a traceback, for logs that end before the message."""
    match = _HEADER.match(text)
    if match is None:
        return None
    if match[1] == "OutOfMemoryError":
        return Found("cuda-oom", 0, {})
    return Found("exception", 0, {"name": match[1]})


def _in_tables(text: str) -> Found | None:
    """Return the most specific known failure on the line, or None."""
    return next(find_failures(text), None)
