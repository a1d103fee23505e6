"""Proposes texts in which one entry has another value. Only the value's span changes; its comment stays.

Like insert_entry and delete_entry, this only proposes texts: edit.py takes the first one that parses as intended.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from vramwise.documents.block import Style, block_lines
from vramwise.documents.compose import Node
from vramwise.documents.lines import break_near, column, comment_of, line_end, line_start
from vramwise.documents.scalar import inline
from vramwise.documents.tree import Entry, content_start, dash_of, indent_of

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
