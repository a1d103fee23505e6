"""Edits a script: replaces a literal, or adds or removes a keyword argument of a call.

Every new text is parsed again and must hold exactly the intended values; otherwise the edit is refused. In a notebook,
only the source of the changed cell is rewritten.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from vramwise.documents.python.notebook import cells_of, with_sources
from vramwise.documents.refusal import EditRefused
from vramwise.errors import ConfigError
from vramwise.types import Document, Edit, Home, Script, Span, split_key


def apply_to_script(document: Document, edits: Sequence[Edit]) -> Document:
    """Return the document with all edits made in order; raises EditRefused if one of them cannot be made."""
    for edit in edits:
        document = _apply(document, edit)
    return document


def _apply(document: Document, edit: Edit) -> Document:
    script = document.script
    assert script is not None
    path = split_key(edit.key)
    key = str(path[0])
    if len(path) > 1:
        return _inside(document, edit, key, [str(part) for part in path[1:]])
    if edit.op == "delete":
        return document if key not in document.values else _without(document, script, key)
    if key in document.values and document.values[key] == edit.value:
        return document
    span = document.spans.get((key,))
    if span is not None:
        return _replaced(document, key, span, edit.value)
    return _inserted(document, script, key, edit)


def _inside(document: Document, edit: Edit, key: str, rest: list[str]) -> Document:
    """Edit a key inside a mapping argument: the whole mapping is rewritten."""
    held = document.values.get(key)
    changed: dict[str, Any] = dict(held) if isinstance(held, dict) else {}
    here = changed
    for part in rest[:-1]:
        here[part] = dict(here[part]) if isinstance(here.get(part), dict) else {}
        here = here[part]
    if edit.op == "delete":
        here.pop(rest[-1], None)
    else:
        here[rest[-1]] = edit.value
    return _apply(document, Edit(op="set", key=key, value=changed, beside=edit.beside))


def _replaced(document: Document, key: str, span: Span, value: Any) -> Document:
    if span.shared:
        line = document.text.count("\n", 0, span.key_start) + 1
        raise EditRefused(
            f"'{key}' is computed at line {line}: change it there to {literal(value)} by hand", by_hand=True
        )
    text = literal(value)
    written = document.text[span.value_start : span.value_end]
    if written.startswith("torch.") and isinstance(value, str):
        text = f"torch.{value}"
    return _read_back(document, span.value_start, span.value_end, text, {key: value})


def _inserted(document: Document, script: Script, key: str, edit: Edit) -> Document:
    place = script.home_of(key)
    home = None if place is None else script.homes.get(place[0])
    if place is None or home is None:
        raise EditRefused(
            f"no call takes '{key}': add {key}={literal(edit.value)} where the training is set up", by_hand=True
        )
    equals = " = " if _spaced(document.text, home) else "="
    at, text = _argument(document.text, home, f"{place[1]}{equals}{literal(edit.value)}")
    return _read_back(document, at, at, text, {key: edit.value})


def _spaced(text: str, home: Home) -> bool:
    """Return whether most arguments of the call have spaces around the equals sign."""
    spaced = [re.match(r"\w+ += ", text[start:end]) is not None for start, end in home.arguments.values()]
    return sum(spaced) * 2 > len(spaced)


def _argument(text: str, home: Home, argument: str) -> tuple[int, str]:
    """Return where a keyword argument goes and its text, in the style of the call."""
    inside = text[home.open_end : home.close_start]
    ends = [end for _, end in home.arguments.values()]
    if not inside.strip():
        return home.open_end, argument
    last = max(ends, default=home.open_end + len(inside.rstrip().rstrip(",").rstrip()))
    last = max(last, home.open_end + _behind_last(inside))
    lines = inside.rstrip().count("\n")
    if lines == 0 or "\n" not in text[home.open_end : last]:
        return last, f", {argument}"
    starts = [start for start, _ in home.arguments.values()]
    indent = _indent(text, max(starts)) if starts else _indent(text, last)
    comma = re.match(r"\s*,", text[last : home.close_start])
    if comma is not None:
        return _line_end(text, last + comma.end()), f"\n{indent}{argument},"
    return last, f",\n{indent}{argument},"


def _behind_last(inside: str) -> int:
    """Return the end of the last argument in a call, including positional ones."""
    return len(inside.rstrip().removesuffix(",").rstrip()) if "#" not in inside else 0


def _line_end(text: str, at: int) -> int:
    """Return the position after a comment on the same line."""
    found = re.compile(r"[ \t]*#[^\n]*").match(text, at)
    return at if found is None else found.end()


def _indent(text: str, at: int) -> str:
    start = text.rfind("\n", 0, at) + 1
    found = re.match(r"[ \t]*", text[start:])
    assert found is not None
    return found[0]


def _without(document: Document, script: Script, key: str) -> Document:
    place = script.home_of(key)
    home = None if place is None else script.homes.get(place[0])
    if place is None or home is None or place[1] not in home.arguments:
        raise EditRefused(f"'{key}' is not an argument of a call: remove it by hand")
    start, end = home.arguments[place[1]]
    text = document.text
    behind = re.compile(r"\s*,[ \t]*(?:#[^\n]*)?(?:\n(?=[ \t]*))?").match(text, end)
    line_start = text.rfind("\n", 0, start) + 1
    alone = not text[line_start:start].strip()
    if behind is not None and alone and behind[0].endswith("\n"):
        return _read_back(document, line_start, behind.end(), "", {}, dropped=key)
    if behind is not None:
        comma = re.compile(r"\s*,[ \t]*").match(text, end)
        assert comma is not None
        return _read_back(document, start, comma.end(), "", {}, dropped=key)
    rest = re.compile(r"[ \t]*(?:#[^\n]*)?\n").match(text, end)
    if alone and rest is not None:
        return _read_back(document, line_start, rest.end(), "", {}, dropped=key)
    before = text.rfind(",", home.open_end, start)
    return _read_back(document, before if before >= 0 else start, end, "", {}, dropped=key)


def _read_back(
    document: Document, start: int, end: int, text: str, wanted: dict[str, Any], *, dropped: str = ""
) -> Document:
    """Return the document with a span replaced; raises EditRefused if anything else would change."""
    script = document.script
    assert script is not None
    changed = document.text[:start] + text + document.text[end:]
    try:
        after = script.reread(_as_file(document, script, changed, start))
    except ConfigError as error:
        raise EditRefused(f"the change would break the source: {error.message}") from error
    differing = {
        key
        for key in {*document.values, *after.values}
        if document.values.get(key, _ABSENT) != after.values.get(key, _ABSENT)
    }
    meant = {*wanted, *([dropped] if dropped else [])}
    missed = [key for key, value in wanted.items() if after.values.get(key, _ABSENT) != value]
    if differing - meant or missed or after.text != changed:
        others = ", ".join(sorted(differing - meant)) or ", ".join(missed)
        raise EditRefused(f"the change would have side effects ({others}): make it by hand")
    return after


_ABSENT = object()


def _as_file(document: Document, script: Script, changed: str, at: int) -> bytes:
    """Return the changed code as the bytes of the file."""
    if not script.cells:
        return _with_line_ends(script.raw, changed)
    cells = cells_of(script.raw)
    grown = len(changed) - len(document.text)
    start = 0
    for cell in cells:
        end = start + len(cell.text)
        if start <= at < end:
            source = changed[start : end + grown].removesuffix("# %%\n")
            source = source if cell.source.endswith("\n") else source.removesuffix("\n")
            return with_sources(script.raw, cells, {cell.number: source}).encode("utf-8")
        start = end
    raise EditRefused("the change is outside all cells: make it by hand")


def _with_line_ends(raw: str, text: str) -> bytes:
    """Return the text with the line endings and byte order mark of the original file."""
    if not raw:
        return text.encode("utf-8")
    mark = "\ufeff" if raw.startswith("\ufeff") else ""
    if "\r\n" in raw and raw.count("\n") == raw.count("\r\n"):
        return (mark + text.replace("\n", "\r\n")).encode("utf-8")
    if "\r" in raw:
        raise EditRefused("this source mixes line endings: save it with one kind first")
    return (mark + text).encode("utf-8")


def literal(value: Any) -> str:
    """Return a value as a Python literal, with double-quoted strings."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(key)}: {literal(held)}" for key, held in value.items()) + "}"
    return repr(value)
