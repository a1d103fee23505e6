"""Finds places in a text: lines by offset, and entries by their path in a tree of nodes.

Line breaks are those of YAML 1.1. A byte order mark belongs to no line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from vramwise.documents.compose import Node
from vramwise.documents.refusal import EditRefused
from vramwise.documents.spans import flatten, is_merge, key_of
from vramwise.types import KeyPath, join_key

BREAKS = "\r\n\x85\u2028\u2029"
_BREAK = re.compile("\r\n|[" + BREAKS + "]")
_PROPERTIES = re.compile("(?:[&!][^\\s]*|\\s+(?:#[^" + BREAKS + "]*)?)*")


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


@dataclass(frozen=True, slots=True)
class Entry:
    """One `key: value` of a mapping or one item of a list."""

    container: Node
    index: int
    key: Node | None
    value: Node

    @property
    def siblings(self) -> int:
        """The number of entries in the container, including this one."""
        return len(self.container.pairs or self.container.items)


def locate(root: Node, path: KeyPath) -> tuple[list[Entry], KeyPath]:
    """Return the entries on the way to a path, and the part of the path that does not exist.

    Raises EditRefused if the path leads through an alias or a merge.
    """
    entries: list[Entry] = []
    node = root
    for depth, part in enumerate(path):
        if node.target is not None:
            raise EditRefused(
                f"'{join_key(path[:depth])}' is an alias (*{node.target.anchor}): "
                f"'{join_key(path)}' is also used elsewhere; change it by hand"
            )
        entry = child(node, part)
        if entry is None:
            if depth < len(path) - 1 and node.kind == "mapping" and part in flatten(node):
                raise EditRefused(
                    f"'{join_key(path[: depth + 1])}' is merged in with '<<' from elsewhere; change it by hand"
                )
            return entries, path[depth:]
        entries.append(entry)
        node = entry.value
    return entries, ()


def child(node: Node, part: str | int) -> Entry | None:
    """Return the entry of a collection under a key or position, or None.

    Digits may also be a text key: `0` finds '0'.
    """
    if node.kind == "sequence":
        if isinstance(part, int) and part < len(node.items):
            return Entry(node, part, None, node.items[part])
        return None
    for wanted in (part, str(part)):
        for index, (key, value) in enumerate(node.pairs):
            if not is_merge(key):
                found = key_of(key)
                if type(found) is type(wanted) and found == wanted:
                    return Entry(node, index, key, value)
    return None


def start_of(text: str, entry: Entry) -> int:
    """Return where an entry starts: its key, the dash of a block list, or the item itself in a flow list."""
    if entry.key is not None:
        return entry.key.start
    if entry.container.flow:
        return entry.value.start
    return dash_of(text, entry.container, entry.index)


def dash_of(text: str, sequence: Node, index: int) -> int:
    """Return the dash of an item of a block list. All dashes of a list are in the same column."""
    first = content_start(text, sequence)
    if index == 0:
        return first
    dashes = re.compile("[" + BREAKS + "] {" + str(column(text, first)) + "}-")
    last = first
    for found in dashes.finditer(text, sequence.items[index - 1].end, sequence.items[index].start):
        last = found.end() - 1
    return last


def content_start(text: str, node: Node) -> int:
    """Return where the first entry of a block collection starts, after its anchor, tag and comments."""
    found = _PROPERTIES.match(text, node.start)
    return node.start if found is None else found.end()


def indent_of(text: str, container: Node) -> int:
    """Return the column of the entries of a block collection."""
    if container.kind == "sequence":
        return column(text, dash_of(text, container, 0))
    return column(text, container.pairs[0][0].start)
