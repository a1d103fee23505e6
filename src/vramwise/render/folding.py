"""Folds long lines for a terminal at spaces, so that no word is cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vramwise.render.outward import unstyle

_DEEPER = "    "
_COMMANDS = ("vramwise ", "export ")


def fold_all(lines: Iterable[str], width: int | None) -> list[str]:
    """Fold each line."""
    return [part for line in lines for part in fold(line, width)]


def fold(line: str, width: int | None, *, deeper: str = _DEEPER) -> list[str]:
    """Fold a line that is too long; further lines are indented more. Colour codes do not count.

    With `width=None` the line stays whole, for other programs. Commands stay whole too, so that they can be copied.
    """
    if width is None or len(unstyle(line)) <= width or line.lstrip(" ").startswith(_COMMANDS):
        return [line]
    indent = line[: len(line) - len(line.lstrip(" "))]
    lines, current = [], ""
    for word in line[len(indent) :].split(" "):
        longer = f"{current} {word}" if current else indent + word
        if current and len(unstyle(longer)) > width:
            lines.append(current)
            longer = f"{indent}{deeper}{word}"
        current = longer
    return [*lines, current]


def listed(names: Sequence[str], word: str = "or") -> str:
    """Join names: `a`, `a or b`, `a, b or c`."""
    return f" {word} ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
