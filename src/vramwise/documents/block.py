"""A plain value → lines of block-style YAML, indented the way the document indents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vramwise.documents.compose import Node
from vramwise.documents.lines import column
from vramwise.documents.scalar import inline
from vramwise.documents.tree import content_start


@dataclass(frozen=True, slots=True)
class Style:
    """How a document indents: spaces a mapping gains inside its key, and spaces a list does."""

    mapping: int = 2
    sequence: int = 2


def style_of(text: str, root: Node) -> Style:
    """The indentation that the document uses first; two spaces where it nests nothing."""
    mapping = sequence = None
    waiting = [root]
    while waiting and (mapping is None or sequence is None):
        node = waiting.pop()
        waiting += reversed(node.items)
        for key, value in reversed(node.pairs):
            waiting.append(value)
            if not value.flow and not node.flow and value.kind in ("mapping", "sequence"):
                step = column(text, content_start(text, value)) - column(text, key.start)
                if value.kind == "mapping" and 0 < step <= 8:
                    mapping = step
                elif value.kind == "sequence" and 0 <= step <= 8:
                    sequence = step
    return Style(2 if mapping is None else mapping, 2 if sequence is None else sequence)


def entry_lines(key: str, value: Any, indent: int, style: Style) -> list[str]:
    """The lines of `key: value`."""
    start = " " * indent + inline(key) + ":"
    if isinstance(value, (list, dict)) and value:
        step = style.mapping if isinstance(value, dict) else style.sequence
        return [start, *block_lines(value, indent + step, style)]
    return [f"{start} {inline(value)}"]


def block_lines(value: list[Any] | dict[str, Any], indent: int, style: Style) -> list[str]:
    """The lines of a collection that is not empty."""
    if isinstance(value, dict):
        return [line for key, item in value.items() for line in entry_lines(key, item, indent, style)]
    lines: list[str] = []
    for item in value:
        if isinstance(item, (list, dict)) and item:
            first, *rest = block_lines(item, indent + 2, style)
            lines += [" " * indent + "- " + first.lstrip(" "), *rest]
        else:
            lines.append(" " * indent + "- " + inline(item))
    return lines
