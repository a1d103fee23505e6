"""Long lines for a terminal: broken at spaces, so that no word is cut."""

from __future__ import annotations

from click import unstyle

_DEEPER = "    "


def fold(text: str, width: int | None) -> str:
    """Break the lines that are too long; further lines are indented deeper. Colour codes do not count.

    None leaves lines whole: for other programs a line is a line.
    """
    if width is None:
        return text
    return "\n".join(_folded(line, width) for line in text.split("\n"))


def _folded(text: str, width: int) -> str:
    if len(unstyle(text)) <= width:
        return text
    indent = text[: len(text) - len(text.lstrip(" "))]
    lines, line = [], ""
    for word in text[len(indent) :].split(" "):
        longer = f"{line} {word}" if line else indent + word
        if line and len(unstyle(longer)) > width:
            lines.append(line)
            longer = f"{indent}{_DEEPER}{word}"
        line = longer
    return "\n".join([*lines, line])
