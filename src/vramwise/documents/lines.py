"""Lines of a text by offset, with the line breaks YAML 1.1 knows. A byte order mark belongs to no line."""

from __future__ import annotations

import re

BREAKS = "\r\n\x85\u2028\u2029"
_BREAK = re.compile("\r\n|[" + BREAKS + "]")


def line_start(text: str, offset: int) -> int:
    """Where the line of an offset starts."""
    start = text.rfind("\n", 0, offset) + 1
    for character in BREAKS:  # the rarer ones are looked for in what remains of the line
        start = max(start, text.rfind(character, start, offset) + 1)
    return 1 if start == 0 and text.startswith("\ufeff") and offset > 0 else start


def line_end(text: str, offset: int) -> int:
    """Where the line of an offset ends, before its break."""
    found = _BREAK.search(text, offset)
    return len(text) if found is None else found.start()


def next_line(text: str, offset: int) -> int:
    """Where the line after the one of an offset starts."""
    found = _BREAK.search(text, offset)
    return len(text) if found is None else found.end()


def column(text: str, offset: int) -> int:
    """How many characters stand before an offset on its line."""
    return offset - line_start(text, offset)


def break_near(text: str, offset: int) -> str:
    """The line break the neighbourhood uses: of this line, else of the line before; "\\n" where there is none."""
    found = _BREAK.search(text, offset)
    if found is None:
        before = list(_BREAK.finditer(text, 0, offset))
        found = before[-1] if before else None
    return found[0] if found is not None and found[0] in ("\n", "\r\n", "\r") else "\n"


def comment_of(text: str, offset: int) -> str:
    """What stands between an offset and the end of its line, when that is a comment: with the blanks before it."""
    rest = text[offset : line_end(text, offset)]
    return rest if rest.lstrip(" \t").startswith("#") else ""
