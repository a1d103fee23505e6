"""Edits a script: replaces a literal, or adds or removes a keyword argument of a call.

Every new text is parsed again and must hold exactly the intended values; otherwise the edit is refused.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Sequence
from typing import Any

from vramwise.documents.python.notebook import apart, cells_of
from vramwise.documents.python.original import Splice, spliced
from vramwise.documents.refusal import EditRefused
from vramwise.errors import ConfigError
from vramwise.limits.meter import Spent
from vramwise.types import Document, Edit, Home, Script, Span, split_key


def apply_to_script(document: Document, edits: Sequence[Edit]) -> Document:
    """Return the document with all edits made in order; raises EditRefused if one of them cannot be made.

    An argument that is added beside a deleted one takes over its line and its comment.
    """
    deleted = {edit.key for edit in edits if edit.op == "delete"}
    for edit in edits:
        renamed = _renamed(document, edit) if edit.op != "delete" and edit.beside in deleted else None
        document = renamed or _apply(document, edit)
    return document


def _renamed(document: Document, edit: Edit) -> Document | None:
    """Return the document with the argument `edit.beside` under the name and value of the edit; None if impossible."""
    script = document.script
    assert script is not None
    old, new = edit.beside or "", edit.key
    before, after = script.home_of(old), script.home_of(new)
    home = None if before is None else script.homes.get(before[0])
    span = document.spans.get((old,))
    if before is None or after is None or home is None or span is None or new in document.values:
        return None
    if before[0] != after[0] or before[1] not in home.arguments or (home.unpacks and script.leaves_open(new)):
        return None
    start = home.arguments[before[1]][0]
    splices = [Splice(start, start + len(before[1]), after[1])]
    if document.values.get(old) != edit.value:
        if span.shared:
            return None
        splices.append(Splice(span.value_start, span.value_end, literal(edit.value)))
    try:
        return _read_back(document, splices, {new: edit.value}, dropped=old)
    except EditRefused:
        return None


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
    words = as_words(document, edit)
    if words:
        why = f"'{key}' is set by the command line: pass {words} (here: --args {shlex.quote(words)})"
        raise EditRefused(why, by_hand=True, words=words)
    if span is not None:
        return _replaced(document, key, span, edit.value)
    return _inserted(document, script, key, edit)


def _inside(document: Document, edit: Edit, key: str, rest: list[str]) -> Document:
    """Edit a key inside a mapping argument, in its dict literal; another mapping is rewritten as a whole."""
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
    if changed == held:
        return document
    span = document.spans.get((key,))
    if span is not None and not span.shared:
        splices = _in_literal(document.text, span, rest, edit)
        if splices is not None:
            return _read_back(document, splices, {key: changed})
        if "#" in document.text[span.value_start : span.value_end]:
            line = document.text.count("\n", 0, span.value_start) + 1
            raise EditRefused(
                f"'{edit.key}' is in a mapping with comments at line {line}: change it by hand", by_hand=True
            )
    return _apply(document, Edit(op="set", key=key, value=changed, beside=edit.beside))


def _in_literal(text: str, span: Span, rest: list[str], edit: Edit) -> list[Splice] | None:
    """Return the edit of an entry of a dict literal; None if the literal is not one, or lacks an outer key."""
    written = text[span.value_start : span.value_end]

    def place(node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        ends = ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))
        start, end = (span.value_start + _offset(written, line, column) for line, column in ends)
        return start, end

    try:
        node: ast.expr = ast.parse(written, mode="eval").body
    except SyntaxError:
        return None
    for depth, part in enumerate(rest, 1):
        if not isinstance(node, ast.Dict) or any(not isinstance(one, ast.Constant) for one in node.keys):
            return None
        entries = {one.value: (one, held) for one, held in zip(node.keys, node.values, strict=True)}  # type: ignore[union-attr]
        if part not in entries or (depth == len(rest) and edit.op == "delete"):
            if depth < len(rest):
                return None
            spans = {str(name): (place(one)[0], place(held)[1]) for name, (one, held) in entries.items()}  # type: ignore[arg-type]
            start, end = place(node)
            home = Home(name="", line=0, open_end=start + 1, close_start=end - 1, arguments=spans)
            if edit.op == "delete":
                return [Splice(*_removed(text, home, spans[part]), "")]
            return _argument(text, home, f"{literal(part)}: {literal(edit.value)}")
        node = entries[part][1]
    return [Splice(*place(node), literal(edit.value))]


def _offset(text: str, line: int, column_bytes: int) -> int:
    lines = text.split("\n")
    before = sum(len(one) + 1 for one in lines[: line - 1])
    return before + len(lines[line - 1].encode("utf-8")[:column_bytes].decode("utf-8", "ignore"))


def as_words(document: Document, edit: Edit) -> str:
    """Return the words of the script's command line that make an edit: `--batch_size 1`; "" if that cannot."""
    span = document.spans.get((edit.key,))
    flag = document.script.flag_of(edit.key) if document.script is not None else ""
    if not flag or edit.op == "delete" or isinstance(edit.value, dict) or (span is not None and not span.shared):
        return ""
    return shlex.join([flag, *map(str, edit.value if isinstance(edit.value, list) else [edit.value])])


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
    return _read_back(document, [Splice(span.value_start, span.value_end, text)], {key: value})


def _inserted(document: Document, script: Script, key: str, edit: Edit) -> Document:
    place = script.home_of(key)
    home = None if place is None else script.homes.get(place[0])
    if place is None or home is None:
        raise EditRefused(
            f"no call takes '{key}': add {key}={literal(edit.value)} where the training is set up", by_hand=True
        )
    if home.unpacks and script.leaves_open(key):
        raise EditRefused(
            f"the call at line {home.line} unpacks a mapping that is not known and may hold '{key}': "
            f"set {key} to {literal(edit.value)} by hand",
            by_hand=True,
        )
    equals = " = " if _spaced(document.text, home) else "="
    splices = _argument(document.text, home, f"{place[1]}{equals}{literal(edit.value)}")
    return _read_back(document, splices, {key: edit.value})


def _spaced(text: str, home: Home) -> bool:
    """Return whether most arguments of the call have spaces around the equals sign."""
    spaced = [re.match(r"\w+ += ", text[start:end]) is not None for start, end in home.arguments.values()]
    return sum(spaced) * 2 > len(spaced)


def _argument(text: str, home: Home, argument: str) -> list[Splice]:
    """Return how a keyword argument is added, in the style of the call. Comments stay on their lines."""
    spans = _arguments(home)
    if not spans:
        return [Splice(home.open_end, home.open_end, argument)]
    inside = text[home.open_end : home.close_start]
    last = max(end for _, end in spans)
    if "#" not in inside:  # behind the brackets around a positional argument
        last = max(last, home.open_end + len(inside.rstrip().removesuffix(",").rstrip()))
    if "\n" not in text[home.open_end : last]:
        return [Splice(last, last, f", {argument}")]
    added = f"\n{_indent(text, spans[-1][0])}{argument},"
    comma = re.compile(r"\s*,").match(text, last, home.close_start)
    end = _line_end(text, last if comma is None else comma.end())
    if comma is not None:
        return [Splice(end, end, added)]
    return [Splice(last, last, f",{added}")] if end == last else [Splice(last, last, ","), Splice(end, end, added)]


def _arguments(home: Home) -> list[tuple[int, int]]:
    """Return the spans of all arguments of a call, in order."""
    return sorted([*home.arguments.values(), *home.others])


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
    start, end = _removed(document.text, home, home.arguments[place[1]])
    return _read_back(document, [Splice(start, end, "")], {}, dropped=key)


def _removed(text: str, home: Home, argument: tuple[int, int]) -> tuple[int, int]:
    """Return what is removed with an argument: its line with its comment, or a comma."""
    start, end = argument
    line_start = text.rfind("\n", 0, start) + 1
    line = re.compile(r"(?:\s*,)?[ \t]*(?:#[^\n]*)?\n").match(text, end)
    if line is not None and not text[line_start:start].strip():
        return line_start, line.end()
    before = max((one for _, one in _arguments(home) if one <= start), default=start)
    if re.fullmatch(r"[ \t]*,[ \t]*", text[before:start]):
        return before, end
    comma = re.compile(r"[ \t]*,[ \t]*").match(text, end)
    return start, end if comma is None else comma.end()


def _read_back(document: Document, splices: list[Splice], wanted: dict[str, Any], *, dropped: str = "") -> Document:
    """Return the document with some spans replaced; raises EditRefused if anything else would change."""
    script = document.script
    assert script is not None
    raw, around = apart(script.raw) if script.cells and not script.around else (script.raw, script.around)
    cells = cells_of(raw) if script.cells else ()
    changed = document.text
    for one in sorted(splices, reverse=True):
        changed = changed[: one.start] + one.text + changed[one.end :]
    try:
        after = script.reread(spliced(raw, script.encoding, cells, splices), around)
    except Spent as error:
        raise EditRefused(f"the change cannot be checked: {error.message}") from error
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


def literal(value: Any) -> str:
    """Return a value as a Python literal, with double-quoted strings."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(key)}: {literal(held)}" for key, held in value.items()) + "}"
    return repr(value)
