"""What a line reports: the most specific of the known texts, otherwise an unknown exception.

A text (a line of `failures.txt`) is a pattern, the kind of failure, and a word to find it quickly. A message may be
wrapped, or begin on the line after its exception's name: if the line alone says nothing, it is joined with the
following lines and examined again. Does not know how a text becomes a cause.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from vramwise.bundled import bundled_text
from vramwise.diagnosis.read.prefixes import reports, unfolded

_EXCEPTION = re.compile(
    r"^(?:E {2,12})?((?:[a-zA-Z_]\w{0,60}\.){0,8}(?:_?[A-Z]\w{0,60}(?:Error|Exception|Interrupt|Exit)|Exception))"
    r"(?:\([A-Z]\w{0,60}\))?(?::\s|:?$)"
)
# IPython writes the exception's name above the traceback, and again below it.
_HEADER = re.compile(r"^\W{0,8}((?:_?[A-Z]\w{0,60}(?:Error|Exception)))\s{2,200}Traceback \(most recent call last\)")
# How far into the next line a message may begin, after a line with only the exception's name.
_INDENT = 80
# A record of a dataset, or source code.
_NO_REPORT = re.compile(
    r"""^\s{0,40}(?:###\s|(?:raise|assert|return|logger|warnings|print|if|except|with)[\s.(]|//|#"""
    r"""|[{\[\s"']{0,8}(?:instruction|input|output|prompt|question|answer|content|messages|system|user|text)["']?\s?:)"""
)
_ADVICE = re.compile(r"(?i)\b(?:if|avoid\w*|prevent\w*|in case|may|might|tips?|hints?|risk|example|likely|reduces?)\b")
# How far before a text such words count.
_BEFORE = 60
# Exceptions that compare two dtypes, in any wording.
_DTYPE = re.compile(
    r"\b(?:c10::|at::|torch\.(?:cuda\.)?)?(Half|Float|BFloat16|Double|float16|bfloat16|float32|float64|float|double|half)"
    r"(?:Tensor)?\b"
)
_COMPARES = re.compile(r"\b(?:same|match|expected|expects?|requires)\b|!=", re.IGNORECASE)
_SAME_AS = {"half": "float16", "float": "float32", "double": "float64"}


class FailureText(NamedTuple):
    """One text. The pattern is tried only if `word` is on the line; `where`: as in the file."""

    kind: str
    word: str
    pattern: re.Pattern[str]
    where: str = "reported"


class Found(NamedTuple):
    """A failure text on a line: its kind, its position, and the named groups of its pattern."""

    kind: str
    start: int
    details: dict[str, str]


def _read() -> Iterator[FailureText]:
    """Yield the rows of the file; without a pattern, the word is the pattern."""
    for line in bundled_text("failures.txt", __file__).splitlines():
        if line and not line.startswith("#"):
            kind, where, word, *pattern = line.split("\t")
            yield FailureText(kind, word, re.compile(pattern[0] if pattern else re.escape(word)), where)


FAILURES = tuple(_read())


def find_failures(text: str) -> Iterator[Found]:
    """Yield the failures that a line reports, in the file's order."""
    for entry in FAILURES:
        if entry.word not in text:
            continue
        match = entry.pattern.search(text)
        if match and (entry.where == "anywhere" or (entry.where == "reported" and reports(text, match.start()))):
            details = {name: value for name, value in match.groupdict().items() if value is not None}
            yield Found(entry.kind, match.start(), details)


def mentioned(text: str) -> Found | None:
    """Return the known failure that a line names in a sentence or a quotation, or None.

    A sample of the data, a line of source and advice ("if you run out of memory") name failures that did not happen.
    """
    if _NO_REPORT.match(text):
        return None
    for entry in FAILURES:
        if entry.word in text and (match := entry.pattern.search(text)):
            if _ADVICE.search(text, max(0, match.start() - _BEFORE), match.start()):
                continue
            details = {name: value for name, value in match.groupdict().items() if value is not None}
            return Found(entry.kind, match.start(), details)
    return None


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
    message = whole[-1] if nameless and whole else ""
    return little or Found("exception", 0, {"name": match[1], "message": message[: _INDENT * 8]})


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


def two_dtypes(text: str) -> dict[str, str]:
    """Return the two differing dtypes of an exception that compares dtypes; empty for any other.

    torch has dozens of such messages (index_add_, index_put_, attention masks, losses); all name both dtypes.
    """
    matches = reversed(list(_DTYPE.finditer(text[:600])))
    found = {_SAME_AS.get(name := match[1].lower(), name): match[0] for match in matches}
    if len(found) != 2 or not _COMPARES.search(text[:600]):
        return {}
    right, left = found.values()
    return {"left": left, "right": right}
