"""The texts of failures (`failures.txt`): a pattern, the kind of failure, and a word to find it quickly.

Does not know how a text becomes a cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from vramwise.bundled import bundled_text
from vramwise.diagnosis.read.prefixes import reports


class FailureText(NamedTuple):
    """One text. The pattern is tried only if `word` is on the line; `anywhere`: it may be inside a sentence."""

    kind: str
    word: str
    pattern: re.Pattern[str]
    anywhere: bool = False


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
            yield FailureText(kind, word, re.compile(pattern[0] if pattern else re.escape(word)), where == "anywhere")


FAILURES = tuple(_read())


def find_failures(text: str) -> Iterator[Found]:
    """Yield the failures that a line reports, in the file's order."""
    for entry in FAILURES:
        if entry.word not in text:
            continue
        match = entry.pattern.search(text)
        if match and (entry.anywhere or reports(text, match.start())):
            details = {name: value for name, value in match.groupdict().items() if value is not None}
            yield Found(entry.kind, match.start(), details)
