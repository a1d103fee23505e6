"""Writes a plain value as lines of block-style YAML, with the document's indentation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vramwise.documents.compose import Node
from vramwise.documents.scalar import inline
from vramwise.documents.tree import column, content_start


@dataclass(frozen=True, slots=True)
class Style:
    """The indentation of a document: spaces added inside a mapping, and inside a list."""

    mapping: int = 2
    sequence: int = 2


def style_of(text: str, root: Node) -> Style:
    """Return the first indentation that the document uses; two spaces if it nests nothing."""
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
    """Return the lines of `key: value`."""
    start = " " * indent + inline(key) + ":"
    if isinstance(value, (list, dict)) and value:
        step = style.mapping if isinstance(value, dict) else style.sequence
        return [start, *block_lines(value, indent + step, style)]
    return [f"{start} {inline(value)}"]


def block_lines(value: list[Any] | dict[str, Any], indent: int, style: Style) -> list[str]:
    """Return the lines of a non-empty collection."""
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
