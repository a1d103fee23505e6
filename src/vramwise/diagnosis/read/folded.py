"""Messages that go on over several lines: put together again, so that no word and no figure is cut in two.

A logger folds at blanks and may indent; a terminal folds anywhere, within a word or a number, and leaves every blank
where it was. Which of the two it was is not written anywhere: both ways are tried, and the one that says more counts.
"""

from __future__ import annotations

import re

from vramwise.diagnosis.read.prefixes import split_rank, unboxed

# Lines of a folded message, and characters of it.
_MOST_LINES = 12
_LONGEST = 2000
# What begins something else: a traceback, a call, another exception, a logger's line, a bar.
_ELSE = re.compile(
    r"^\s*(?:Traceback \(most recent|During handling of|The above exception|File \"|\+-|[-=*]{8,}"
    r"|\[?\d{4}-\d\d-\d\d[ T]|(?:[\w.]{1,80}\.)?[A-Z]\w{0,60}(?:Error|Exception|Warning): |.{0,80}\d%\|)"
)


def unfolded(text: str, following: str) -> tuple[str, str]:
    """A line with those that may belong to it: as a terminal folds it, and as a logger does."""
    lines = [text.rstrip("\r\n")]
    for line in following.lstrip("\r").removeprefix("\n").split("\n")[:_MOST_LINES]:
        if not line.strip(" \t\r│┃║|") or _ELSE.match(line):
            break
        lines.append(split_rank(line.rstrip("\r"))[1])
    first, *rest = lines
    # Within a box the blanks at either end are the box's.
    boxed = any(line[:1] in "│┃║" for line in rest)
    by_width = first + "".join(unboxed(line) if boxed else line for line in rest)
    by_words = " ".join(filter(None, (first.strip(" \t│┃║|"), *(unboxed(line) for line in rest))))
    return by_width[:_LONGEST], by_words[:_LONGEST]
