"""Proposes texts in which a mapping has one more key, or a list one more item: beside a related key, or at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vramwise.documents.block import Style, block_lines, entry_lines
from vramwise.documents.compose import Node
from vramwise.documents.lines import break_near, line_end, line_start, next_line
from vramwise.documents.scalar import inline
from vramwise.documents.tree import Entry, child, indent_of


def with_entry(
    text: str, container: Node, key: str | None, value: Any, beside: str | int | None, style: Style
) -> Iterator[str]:
    """Yield proposals for the text with this entry in the container. An entry of a list has no key."""
    neighbour = None if beside is None else child(container, beside)
    if container.flow:
        yield _in_flow(text, container, key, value, neighbour)
        return
    node = _last(container) if neighbour is None else neighbour.value
    indent = indent_of(text, container)
    lines = block_lines([value], indent, style) if key is None else entry_lines(key, value, indent, style)
    # Right after the neighbour, but after comments indented below it, and after blank lines that belong to a block
    # scalar (`|+`).
    ends = (_behind_its_comments(text, node.end, indent), line_end(text, node.end), _full_end(text, node))
    for end in dict.fromkeys(ends):
        newline = break_near(text, end)
        yield text[:end] + newline + newline.join(lines) + text[end:]


def _last(container: Node) -> Node:
    return container.pairs[-1][1] if container.pairs else container.items[-1]


def _full_end(text: str, node: Node) -> int:
    """Return the end of the last line of a node, including its blank lines."""
    end = node.full_end
    if end > node.end and end == line_start(text, end):  # the mark is at the start of the next line
        end -= 2 if text[end - 2 : end] == "\r\n" else 1
    return end


def _behind_its_comments(text: str, offset: int, indent: int) -> int:
    end = line_end(text, offset)
    while True:
        start = next_line(text, end)
        line = text[start : line_end(text, start)]
        if start == end or not line.startswith(" " * (indent + 1)) or not line.lstrip(" ").startswith("#"):
            return end
        end = start + len(line)


def _in_flow(text: str, container: Node, key: str | None, value: Any, neighbour: Entry | None) -> str:
    written = inline(value, flow=True)
    if key is not None:
        written = f"{inline(key, flow=True)}: {written}"
    if not container.pairs and not container.items:
        opening = text.rindex("{" if container.kind == "mapping" else "[", container.start, container.end)
        return text[: opening + 1] + written + text[opening + 1 :]
    end = (_last(container) if neighbour is None else neighbour.value).end
    return text[:end] + ", " + written + text[end:]
