"""The texts of failures (`failures.txt`): a pattern, the kind of failure it reports, and a word that is quick to find.

How a text becomes a cause is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from vramwise.bundled import bundled_text
from vramwise.diagnosis.read.prefixes import reports


class FailureText(NamedTuple):
    """One text. `word` must be on the line for the pattern to be tried; `anywhere`: also counts inside a sentence."""

    kind: str
    word: str
    pattern: re.Pattern[str]
    anywhere: bool = False


class Found(NamedTuple):
    """A failure text on a line: its kind, where it begins, and the groups its pattern names."""

    kind: str
    start: int
    details: dict[str, str]


def _read() -> Iterator[FailureText]:
    """The rows of the file; one without a pattern has its word for one."""
    for line in bundled_text("failures.txt", __file__).splitlines():
        if line and not line.startswith("#"):
            kind, where, word, *pattern = line.split("\t")
            yield FailureText(kind, word, re.compile(pattern[0] if pattern else re.escape(word)), where == "anywhere")


FAILURES = tuple(_read())


def find_failures(text: str) -> Iterator[Found]:
    """The failures that a line reports, in the file's order."""
    for entry in FAILURES:
        if entry.word not in text:
            continue
        match = entry.pattern.search(text)
        if match and (entry.anywhere or reports(text, match.start())):
            details = {name: value for name, value in match.groupdict().items() if value is not None}
            yield Found(entry.kind, match.start(), details)
