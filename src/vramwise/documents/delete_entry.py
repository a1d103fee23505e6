"""Proposes texts without an entry: its lines and its own comment are removed, other comments stay."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from vramwise.documents.compose import Node
from vramwise.documents.lines import BREAKS, column, line_end, line_start, next_line
from vramwise.documents.refusal import EditRefused
from vramwise.documents.tree import Entry, start_of

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
