"""Proposes edits of a JSON document with quoted keys and valid commas, so that it stays JSON.

A mapping in braces is YAML too and is parsed as such; this module only decides how edits are written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from vramwise.budget import parse_json
from vramwise.documents import values as intent
from vramwise.types import Document, KeyPath, Span


def is_json(text: str) -> bool:
    """Return whether the text is a JSON object."""
    if not text.lstrip("\ufeff \t\r\n").startswith("{"):
        return False
    try:
        return isinstance(parse_json(text.lstrip("\ufeff")), dict)
    except ValueError:
        return False


def json_change(document: Document, path: KeyPath, value: Any, beside: KeyPath | None) -> Iterator[str]:
    """Yield the text with a value set, or a key inserted after a neighbour (else at the end of its mapping)."""
    text, span = document.text, document.spans.get(path)
    if span is not None:
        yield text[: span.value_start] + json.dumps(value) + text[span.value_end :]
        return
    depth = next(size for size in range(len(path) - 1, -1, -1) if size == 0 or path[:size] in document.spans)
    entry = f"{json.dumps(path[depth])}: {json.dumps(intent.nested(path[depth + 1 :], value))}"
    siblings = _entries(document, path[:depth])
    if not siblings:
        if depth:
            block = document.spans[path[:depth]]
            yield f"{text[: block.value_start]}{{{entry}}}{text[block.value_end :]}"
        return
    after = siblings.get(beside[depth] if beside is not None and len(beside) > depth else None)
    span = after or list(siblings.values())[-1]
    yield f"{text[: span.value_end]},{_gap(text, span)}{entry}{text[span.value_end :]}"


def json_deletion(document: Document, path: KeyPath) -> Iterator[str]:
    """Yield the text without a key, with the comma after it, or the one before it if the key is last."""
    text, siblings = document.text, _entries(document, path[:-1])
    names = list(siblings)
    if path[-1] not in names:
        return
    place, span = names.index(path[-1]), siblings[path[-1]]
    if place + 1 < len(names):
        yield text[: span.key_start] + text[siblings[names[place + 1]].key_start :]
    elif place:
        yield text[: siblings[names[place - 1]].value_end] + text[span.value_end :]
    else:
        yield text[: span.key_start].rstrip() + text[span.value_end :].lstrip()


def _entries(document: Document, path: KeyPath) -> dict[Any, Span]:
    """Return the keys of a mapping with their spans, in the order of the text."""
    found = [(key, span) for key, span in document.spans.items() if key[:-1] == path and len(key) == len(path) + 1]
    return {key[-1]: span for key, span in sorted(found, key=lambda one: one[1].key_start)}


def _gap(text: str, span: Span) -> str:
    """Return the whitespace before a neighbour: a newline with its indentation, or a space."""
    head = text[: span.key_start]
    blank = head[len(head.rstrip(" \t")) :]
    newline = "\r\n" if head[: len(head) - len(blank)].endswith("\r\n") else "\n"
    return f"{newline}{blank}" if head[: len(head) - len(blank)].endswith(("\n", "\r")) else " "
