"""What a failure text is: a pattern, the kind of failure it reports, and words that are quick to look for.

The tables are in `oom_texts`, `dtype_texts` and `host_texts`; how a text becomes a cause is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

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


def failure(kind: str, word: str, pattern: str | None = None, *, anywhere: bool = False) -> FailureText:
    """A failure text; without a pattern the word itself is the text."""
    return FailureText(kind, word, re.compile(pattern or re.escape(word)), anywhere)


def find_failures(text: str, table: Sequence[FailureText]) -> Iterator[Found]:
    """The failures that a line reports, in the table's order."""
    for entry in table:
        if entry.word not in text:
            continue
        match = entry.pattern.search(text)
        if match and (entry.anywhere or reports(text, match.start())):
            details = {name: value for name, value in match.groupdict().items() if value is not None}
            yield Found(entry.kind, match.start(), details)
