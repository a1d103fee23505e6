"""Finds lines of a text by offset, with the line breaks of YAML 1.1. A byte order mark belongs to no line."""

from __future__ import annotations

import re

BREAKS = "\r\n\x85\u2028\u2029"
_BREAK = re.compile("\r\n|[" + BREAKS + "]")


def line_start(text: str, offset: int) -> int:
    """Return where the line of an offset starts."""
    start = text.rfind("\n", 0, offset) + 1
    for character in BREAKS:  # the rarer ones are searched only in the rest of the line
        start = max(start, text.rfind(character, start, offset) + 1)
    return 1 if start == 0 and text.startswith("\ufeff") and offset > 0 else start


def line_end(text: str, offset: int) -> int:
    """Return where the line of an offset ends, before its break."""
    found = _BREAK.search(text, offset)
    return len(text) if found is None else found.start()


def next_line(text: str, offset: int) -> int:
    """Return where the next line starts."""
    found = _BREAK.search(text, offset)
    return len(text) if found is None else found.end()


def column(text: str, offset: int) -> int:
    """Return the number of characters before an offset on its line."""
    return offset - line_start(text, offset)


def break_near(text: str, offset: int) -> str:
    """Return the line break used nearby: of this line, else of the line before; a newline if there is none."""
    found = _BREAK.search(text, offset)
    if found is None:
        before = list(_BREAK.finditer(text, 0, offset))
        found = before[-1] if before else None
    return found[0] if found is not None and found[0] in ("\n", "\r\n", "\r") else "\n"


def comment_of(text: str, offset: int) -> str:
    """Return the comment between an offset and the end of its line, with the blanks before it; "" if there is none."""
    rest = text[offset : line_end(text, offset)]
    return rest if rest.lstrip(" \t").startswith("#") else ""
