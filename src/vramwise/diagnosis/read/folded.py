"""Rejoin messages that were wrapped over several lines, so that no word or figure is cut in two.

A logger wraps at blanks and may indent; a terminal wraps anywhere, within a word or a number, and keeps every blank.
The log does not say which it was: callers try both and take the one that yields more.
"""

from __future__ import annotations

import re

from vramwise.diagnosis.read.prefixes import split_rank, unboxed

# The most lines and characters of a wrapped message.
_MOST_LINES = 12
_LONGEST = 2000
# The start of something else: a traceback, a call, another exception, a logger's line, a progress bar.
_ELSE = re.compile(
    r"^\s*(?:Traceback \(most recent|During handling of|The above exception|File \"|\+-|[-=*]{8,}"
    r"|\[?\d{4}-\d\d-\d\d[ T]|(?:[\w.]{1,80}\.)?[A-Z]\w{0,60}(?:Error|Exception|Warning): |.{0,80}\d%\|)"
)


def unfolded(text: str, following: str) -> tuple[str, str]:
    """Return a line joined with the lines that may belong to it: as a terminal wraps it, and as a logger does."""
    lines = [text.rstrip("\r\n")]
    for line in following.lstrip("\r").removeprefix("\n").split("\n")[:_MOST_LINES]:
        if not line.strip(" \t\r│┃║|") or _ELSE.match(line):
            break
        lines.append(split_rank(line.rstrip("\r"))[1])
    first, *rest = lines
    # Inside a box, the blanks at both ends belong to the box.
    boxed = any(line[:1] in "│┃║" for line in rest)
    by_width = first + "".join(unboxed(line) if boxed else line for line in rest)
    by_words = " ".join(filter(None, (first.strip(" \t│┃║|"), *(unboxed(line) for line in rest))))
    return by_width[:_LONGEST], by_words[:_LONGEST]
