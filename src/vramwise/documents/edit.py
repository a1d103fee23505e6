"""Edits a config by its spans: set, insert, delete. YAML is edited, never re-emitted.

Every proposal for the new text is parsed again and must hold exactly the intended values in the old order. Otherwise
the next one is tried; if none is right, the edit is refused and nothing changes. Knows neither files nor trainers.

A JSON config is parsed as YAML, which a mapping in braces is too. Its edits keep quoted keys and valid commas, so that
it stays JSON.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from vramwise.documents import values as intent
from vramwise.documents.block import style_of
from vramwise.documents.compose import Node, compose
from vramwise.documents.document import parse_document, parse_value
from vramwise.documents.proposals import with_entry, with_value, without_entry
from vramwise.documents.refusal import EditRefused
from vramwise.documents.scalar import inline, plain_value
from vramwise.documents.tree import locate
from vramwise.errors import ConfigError, VramwiseError
from vramwise.limits import parse_json
from vramwise.types import Document, Edit, KeyPath, Span, join_key, split_key

__all__ = ["EditRefused", "apply_edits", "diff"]


def apply_edits(document: Document, edits: Sequence[Edit]) -> Document:
    """Return the document with all edits made in order; raises EditRefused if one of them cannot be made.

    A key that is inserted beside a deleted one takes over its line and its comment.
    """
    if document.script is not None:
        from vramwise.documents.python.edit import apply_to_script  # late: most documents are no scripts

        return apply_to_script(document, edits)
    deleted = {edit.key for edit in edits if edit.op == "delete"}
    successors: dict[str | None, str] = {}
    for edit in edits:
        edit = replace(edit, beside=successors.get(edit.beside, edit.beside))
        renamed = _rename(document, edit) if edit.op != "delete" and edit.beside in deleted else None
        if renamed is not None:
            successors[edit.beside] = edit.key
        document = renamed or _apply(document, edit)
    return document


def diff(before: Document, after: Document) -> str:
    """Return a unified diff; empty if nothing changed."""
    lines = difflib.unified_diff(_lines(before.text), _lines(after.text), before.path, after.path)
    return "".join(line if line.endswith(("\n", "\r")) else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)


def _apply(document: Document, edit: Edit) -> Document:
    path = split_key(edit.key)
    now = intent.lookup(document.values, path)
    if edit.op == "delete":
        if not now:
            return document
        wanted = intent.drop(document.values, path)
        proposals = _json_deletion(document, path) if _is_json(document.text) else _deletion(document, path)
    else:
        value = plain_value(edit.value)
        if now and intent.identical(now[0], value):
            return document
        _check_parents(document, path, edit.key)
        wanted = intent.put(document.values, path, value)
        if _is_json(document.text):
            proposals = _json_change(document, path, value, split_key(edit.beside) if edit.beside else None)
        else:
            proposals = _change(document, path, value, edit.beside)
    for text in proposals:
        after = _read_back(document.path, text, wanted, document)
        if after is not None:
            return after
    raise EditRefused(_why(document, path, edit))


def _rename(document: Document, edit: Edit) -> Document | None:
    """Return the document in which `edit.beside` has the name and value of the edit; None if that is impossible."""
    old, new = split_key(edit.beside or ""), split_key(edit.key)
    held = intent.lookup(document.values, old)
    if old[:-1] != new[:-1] or not held or intent.lookup(document.values, new):
        return None
    try:
        entries, missing = locate(_root(document), old)
        if missing or entries[-1].key is None:
            return None
        key = entries[-1].key
        name = inline(new[-1], flow=entries[-1].container.flow)
        if _is_json(document.text):
            name = json.dumps(new[-1])
        wanted = intent.put(intent.drop(document.values, old), new, held[0])
        text = document.text[: key.start] + name + document.text[key.end :]
        renamed = _read_back(document.path, text, wanted, document)
        return renamed and _apply(renamed, Edit(op="set", key=edit.key, value=edit.value))
    except EditRefused:
        return None


def _read_back(path: str, text: str, wanted: dict[str, Any], before: Document) -> Document | None:
    """Return the document of a proposed text if it holds the wanted values and keeps the order of keys; else None."""
    try:
        after = parse_document(path, text.encode("utf-8", "surrogatepass"))
    except ConfigError:
        return None
    if _is_json(before.text) and not _is_json(text):
        return None
    if not intent.identical(after.values, intent.in_order_of(wanted, after.values)):
        return None
    return after if _order_kept(before.values, after.values) else None


def _order_kept(before: Any, after: Any) -> bool:
    if isinstance(before, dict) and isinstance(after, dict):
        kept = [key for key in before if key in after]
        return kept == [key for key in after if key in before] and all(_order_kept(before[k], after[k]) for k in kept)
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return all(_order_kept(a, b) for a, b in zip(before, after, strict=True))
    return True


def _check_parents(document: Document, path: KeyPath, key: str) -> None:
    """Raise EditRefused unless the key can be put into a mapping, or at the end of a list."""
    here: Any = document.values
    for depth, part in enumerate(path):
        step = intent.step_into(here, part)
        if step is None:
            if isinstance(here, list) and part != len(here):
                raise EditRefused(f"'{key}' cannot be written: the list there has {len(here)} items")
            if isinstance(here, dict) and any(isinstance(rest, int) for rest in path[depth:]):
                raise EditRefused(f"'{key}' cannot be written: there is no list at that position")
            return
        here = here[step]
        if here is None:
            if any(isinstance(rest, int) for rest in path[depth + 1 :]):
                raise EditRefused(f"'{key}' cannot be written: there is no list at that position")
            return
        if not isinstance(here, (dict, list)) and depth < len(path) - 1:
            raise EditRefused(f"'{key}' cannot be written: '{part}' is a single value, not a mapping")


def _root(document: Document) -> Node:
    root = compose(document.text)
    assert root is not None  # the document was parsed before
    return root


def _deletion(document: Document, path: KeyPath) -> Iterator[str]:
    entries, missing = locate(_root(document), path)
    if not missing:
        yield from without_entry(document.text, entries)


def _change(document: Document, path: KeyPath, value: Any, beside: str | None) -> Iterator[str]:
    root = _root(document)
    text = document.text
    style = style_of(text, root)
    entries, missing = locate(root, path)
    if not missing:
        yield from with_value(text, entries[-1], value, style)
        return
    container = entries[-1].value if entries else root
    if container.kind == "scalar":  # `fsdp_config:` with nothing after it
        yield from with_value(text, entries[-1], intent.nested(missing, value), style)
        return
    depth = len(path) - len(missing)
    neighbour = None
    if beside is not None:
        beside_path = split_key(beside)
        if beside_path[:depth] == path[:depth] and len(beside_path) > depth:
            neighbour = beside_path[depth]
    key, new = str(missing[0]), intent.nested(missing[1:], value)
    yield from with_entry(text, container, None if container.kind == "sequence" else key, new, neighbour, style)


def _why(document: Document, path: KeyPath, edit: Edit) -> str:
    """Return the reason for a refusal; usually the value is shared."""
    entries, missing = locate(_root(document), path)
    for depth, entry in enumerate(entries, start=1):
        if entry.value.aliased:
            return (
                f"'{edit.key}' was not changed: '{join_key(path[:depth])}' has the anchor '&{entry.value.anchor}', "
                "which is used elsewhere; change it by hand"
            )
    if missing and edit.op == "delete":
        return f"'{edit.key}' was not changed: it is merged in with '<<' from elsewhere; change it by hand"
    verb = "deleting" if edit.op == "delete" else "writing"
    return f"'{edit.key}' was not changed: {verb} it would change more than this key; change it by hand"


def with_changes(document: Document, changes: Sequence[str]) -> Document:
    """Return the document with the changes applied. Values are read as YAML; `key=` removes the key.

    Raises VramwiseError for a change that is not `key=value` or cannot be applied.
    """
    edits = [_edit_of_change(change) for change in changes]
    if document.script is not None and document.script.given is not None:
        from vramwise.documents.python.edit import as_words  # late: most documents are no scripts

        words = {edit.key: as_words(document, edit) for edit in edits}
        if any(words.values()):
            document = document.script.given(" ".join(filter(None, words.values())))
            edits = [edit for edit in edits if not words[edit.key]]
    return apply_edits(document, edits)


def _edit_of_change(change: str) -> Edit:
    key, equals, text = change.partition("=")
    key = key.strip()
    if not equals or not key:
        raise VramwiseError(f"--what-if {change}: expected key=value, e.g. micro_batch_size=1")
    if not text.strip():
        return Edit(op="delete", key=key)
    try:
        value = parse_value(text)
    except ConfigError as error:
        raise VramwiseError(f"--what-if {change[:80]}: {error.message}") from error
    return Edit(op="insert", key=key, value=value)


def as_json(value: Any) -> str:
    """Return a value as JSON that is the same value in YAML, where a number such as 1e-05 needs a point."""
    text = json.dumps(value)
    return text.replace("e", ".0e") if isinstance(value, float) and "e" in text and "." not in text else text


def _is_json(text: str) -> bool:
    """Return whether the text is a JSON object."""
    if not text.lstrip("\ufeff \t\r\n").startswith("{"):
        return False
    try:
        return isinstance(parse_json(text.lstrip("\ufeff")), dict)
    except ValueError:
        return False


def _json_change(document: Document, path: KeyPath, value: Any, beside: KeyPath | None) -> Iterator[str]:
    """Yield the text with a value set, or a key inserted after a neighbour (else at the end of its mapping)."""
    text, span = document.text, document.spans.get(path)
    if span is not None:
        yield text[: span.value_start] + as_json(value) + text[span.value_end :]
        return
    depth = next(size for size in range(len(path) - 1, -1, -1) if size == 0 or path[:size] in document.spans)
    entry = f"{json.dumps(path[depth])}: {as_json(intent.nested(path[depth + 1 :], value))}"
    siblings = _entries(document, path[:depth])
    if not siblings:
        if depth:
            block = document.spans[path[:depth]]
            yield f"{text[: block.value_start]}{{{entry}}}{text[block.value_end :]}"
        return
    after = siblings.get(beside[depth] if beside is not None and len(beside) > depth else None)
    span = after or list(siblings.values())[-1]
    yield f"{text[: span.value_end]},{_gap(text, span)}{entry}{text[span.value_end :]}"


def _json_deletion(document: Document, path: KeyPath) -> Iterator[str]:
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
