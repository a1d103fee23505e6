"""What a line reports: the most telling text of those that are known, else an exception that nobody knows.

A message may be folded, or begin on the line after its exception's name: where the line alone says nothing, it is put
together with those after it and looked at again.
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
# IPython writes the exception's name over the traceback, and again below it.
_HEADER = re.compile(r"^\W{0,8}((?:_?[A-Z]\w{0,60}(?:Error|Exception)))\s{2,200}Traceback \(most recent call last\)")
# How far into the next line a message below its exception's name may begin.
_INDENT = 80


def reported(text: str, following: Callable[[], str]) -> Found | None:
    """The failure that a line reports; None where it reports none. `following` gives the text after it."""
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
    """The exception that IPython names over a traceback: all there is of it, where the log ends too soon."""
    match = _HEADER.match(text)
    if match is None:
        return None
    if match[1] == "OutOfMemoryError":
        return Found("cuda-oom", 0, {})
    return Found("exception", 0, {"name": match[1]})


def _in_tables(text: str) -> Found | None:
    """One kind only, the most telling."""
    return next(find_failures(text), None)
