"""Proposes texts in which one entry is set, inserted or deleted. `edit` takes the first one that parses as intended.

- Set: only the value's span changes; its comment stays.
- Insert: a mapping gets one more key, or a list one more item: beside a related key, or at the end.
- Delete: the entry's lines and its own comment are removed; other comments stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from vramwise.documents.block import Style, block_lines, entry_lines
from vramwise.documents.compose import Node
from vramwise.documents.refusal import EditRefused
from vramwise.documents.scalar import inline
from vramwise.documents.tree import (
    BREAKS,
    Entry,
    break_near,
    child,
    column,
    comment_of,
    content_start,
    dash_of,
    indent_of,
    line_end,
    line_start,
    next_line,
    start_of,
)

_COLON = re.compile(r"[ \t]*:")


def with_value(text: str, entry: Entry, value: Any, style: Style) -> Iterator[str]:
    """Yield proposals for the text in which the entry has this value."""
    old = entry.value
    indicator = _indicator_end(text, entry)
    in_block = not entry.container.flow and not old.flow and entry.key is not None
    if in_block and indicator is not None and isinstance(value, (list, dict)) and value:
        yield _as_block(text, entry, indicator, value, style)
    written = inline(value, flow=entry.container.flow, quote=old.style if old.style in ("'", '"') else None)
    if _is_block_collection(old) and indicator is not None:
        yield _block_to_line(text, old, indicator, written)
    else:
        yield _on_the_line(text, entry, indicator, written)


def _indicator_end(text: str, entry: Entry) -> int | None:
    """Return the position after a key's ':' or an item's '-'.

    None in `{a, b}`, in flow lists and for an explicit '?' key.
    """
    if entry.key is None:
        return None if entry.container.flow else dash_of(text, entry.container, entry.index) + 1
    found = _COLON.match(text, entry.key.end)
    return None if found is None else found.end()


def _is_block_collection(node: Node) -> bool:
    return node.kind in ("mapping", "sequence") and not node.flow


def _anchor(node: Node) -> str:
    return "" if node.anchor is None else f"&{node.anchor} "


def _on_the_line(text: str, entry: Entry, indicator: int | None, written: str) -> str:
    """Replace a scalar, an alias or a flow collection in place."""
    old = entry.value
    if old.start == old.end:
        start = old.start if indicator is None else indicator
        gap = ": " if indicator is None and entry.key is not None else " "
        return text[:start] + gap + written + text[start:]
    new = _anchor(old) + written
    if old.style in ("|", ">"):
        new += comment_of(text, _header_end(text, old))
    return text[: old.start] + new + text[old.end :]


def _header_end(text: str, block_scalar: Node) -> int:
    """Return the position after `|`, `>-`, `|2`…, before the header's comment."""
    rest = text[block_scalar.start : line_end(text, block_scalar.start)]
    found = re.match(r"(?:[&!]\S*\s+)*[|>][-+0-9]*", rest)
    return block_scalar.start + (len(rest) if found is None else found.end())


def _block_to_line(text: str, old: Node, indicator: int, written: str) -> str:
    """Replace a block collection by a value on the line of its key; comments inside it are removed."""
    # `- a: 1` starts on the line of the dash
    if line_start(text, content_start(text, old)) == line_start(text, indicator):
        return text[: old.start] + _anchor(old) + written + text[old.end :]
    head = _comment_on_key_line(text, old, indicator)
    return text[:indicator] + " " + _anchor(old) + written + head + text[line_end(text, old.end) :]


def _comment_on_key_line(text: str, old: Node, indicator: int) -> str:
    """Return the comment after `key:` of a value on later lines, or after the header of a block scalar."""
    if old.style in ("|", ">"):
        return comment_of(text, _header_end(text, old))
    last_of_line = re.compile(r"(?:\s*[&!]\S*)*").match(text, indicator, line_end(text, indicator))
    return comment_of(text, indicator if last_of_line is None else last_of_line.end())


def _as_block(text: str, entry: Entry, indicator: int, value: list[Any] | dict[str, Any], style: Style) -> str:
    """Write a collection below its key, indented like the one it replaces or like the document."""
    old = entry.value
    assert entry.key is not None
    anchor = f" {_anchor(old)}".rstrip()
    head = _comment_on_key_line(text, old, indicator)
    if not _is_block_collection(old) and old.style not in ("|", ">"):
        head = head or comment_of(text, old.end)
    lines = block_lines(value, _indent(text, entry, value, style), style)
    newline = break_near(text, entry.key.end)
    return text[:indicator] + anchor + head + newline + newline.join(lines) + text[line_end(text, old.end) :]


def _indent(text: str, entry: Entry, value: list[Any] | dict[str, Any], style: Style) -> int:
    old = entry.value
    assert entry.key is not None
    base = column(text, entry.key.start)
    kind = "mapping" if isinstance(value, dict) else "sequence"
    if _is_block_collection(old) and (old.pairs or old.items):
        there = indent_of(text, old)
        if old.kind == kind or there > base:
            return there
    return base + (style.mapping if kind == "mapping" else style.sequence)


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


_COMMA = re.compile(r"[ \t]*,")
_BLANK = re.compile(r"[ \t]*(?:#[^" + BREAKS + r"]*)?$")


def without_entry(text: str, entries: Sequence[Entry]) -> Iterator[str]:
    """Yield proposals for the text without the last of these entries (the path from the root).

    A parent that becomes empty is removed too. Raises EditRefused if the config would become empty.
    """
    entry = _topmost_emptied(entries)
    if entry.container.flow:
        yield from _from_flow(text, entry)
        return
    start = start_of(text, entry)
    line = line_start(text, start)
    end = entry.value.end if entry.key is None else max(entry.key.end, entry.value.end)
    if text[line:start].strip(" \t"):  # `- a: 1`: the entry shares its line with the dash
        yield from _behind_a_dash(text, entry, start, end)
        return
    behind = next_line(text, end)
    yield text[:line] + text[behind:]
    # If the entry before is a block scalar, the remaining lines would become part of it: remove them too.
    yield text[:line] + text[max(behind, entry.value.full_end) :]
    yield text[:line] + text[_behind_inner_comments(text, behind, column(text, start)) :]


def _topmost_emptied(entries: Sequence[Entry]) -> Entry:
    for entry in reversed(entries):
        if entry.siblings > 1:
            return entry
    raise EditRefused("deleting the last key would leave the config empty")


def _behind_inner_comments(text: str, start: int, indent: int) -> int:
    while start < len(text):
        line = text[start : line_end(text, start)]
        if line.strip(" \t") and not (line.startswith(" " * (indent + 1)) and line.lstrip(" ").startswith("#")):
            return start
        start = next_line(text, start)
    return start


def _behind_a_dash(text: str, entry: Entry, start: int, end: int) -> Iterator[str]:
    following = start_of(text, Entry(entry.container, entry.index + 1, *_parts(entry.container, entry.index + 1)))
    if not text[line_end(text, end) : following].strip():
        yield text[:start] + text[following:]
    yield text[:start].rstrip(" ") + text[line_end(text, end) :]


def _parts(container: Node, index: int) -> tuple[Node | None, Node]:
    return container.pairs[index] if container.pairs else (None, container.items[index])


def _from_flow(text: str, entry: Entry) -> Iterator[str]:
    container, index = entry.container, entry.index
    start, end = start_of(text, entry), entry.value.end
    alone = _own_lines(text, start, end)
    if alone is not None:
        yield text[: alone[0]] + text[alone[1] :]
    if index + 1 < entry.siblings:
        key, value = _parts(container, index + 1)
        yield text[:start] + text[(key or value).start :]
    if index > 0:
        yield text[: _parts(container, index - 1)[1].end] + text[end:]


def _own_lines(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return the lines of a flow entry that has no other entry on them, with comma and comment; else None."""
    comma = _COMMA.match(text, end)
    rest = end if comma is None else comma.end()
    line = line_start(text, start)
    if text[line:start].strip(" \t") or not _BLANK.match(text[rest : line_end(text, rest)]):
        return None
    return line, next_line(text, rest)
