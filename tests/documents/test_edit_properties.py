"""Random edits on random YAML: refused, or exactly the intended values with every other line as it was."""

from __future__ import annotations

import copy
import re
from typing import Any

from hypothesis import assume, event, given
from hypothesis import strategies as st
from yaml_texts import documents, examples, plain_values

from vramwise.documents.document import parse_document
from vramwise.documents.edit import EditRefused, apply_edits
from vramwise.errors import ConfigError
from vramwise.types import Document, Edit, KeyPath, join_key, split_key

NEW_KEYS = ["new", "gradient_accumulation_steps", "fsdp_config.x", "yes", "p.q.r"]


def read(text: str) -> Document:
    try:
        return parse_document("c.yml", text.encode())
    except ConfigError:
        assume(False)
        raise


def addressable(path: KeyPath) -> bool:
    return split_key(join_key(path)) == path


@st.composite
def documents_and_edits(draw: Any) -> tuple[Document, Edit]:
    document = read(draw(documents()))
    paths = [path for path in document.spans if addressable(path)]
    path = draw(st.sampled_from(paths)) if paths else ("new",)
    op = draw(st.sampled_from(["set", "set", "insert", "delete"]))
    key = join_key(path)
    beside = None
    if op == "insert":
        new = draw(st.sampled_from(NEW_KEYS))
        key = draw(st.sampled_from([new, f"{key}.{new}", join_key((*path[:-1], "new"))]))
        beside = join_key(path) if draw(st.booleans()) else None
    return document, Edit(op=op, key=key, value=draw(plain_values), beside=beside)


# An oracle of its own: paths into nested values, with none of the code under test.


def find(values: Any, part: str | int) -> str | int | None:
    if isinstance(values, dict):
        return next((key for key in (part, str(part)) if key in values), None)
    return part if isinstance(values, list) and isinstance(part, int) and part < len(values) else None


def intended(values: Any, edit: Edit) -> Any:
    path = split_key(edit.key)
    values = copy.deepcopy(values)
    way = [values]
    for part in path[:-1]:
        found = find(way[-1], part)
        if found is None or way[-1][found] is None:
            assert edit.op != "delete"
            way[-1][part if found is None else found] = {}
            found = part if found is None else found
        way[-1][found] = copy.deepcopy(way[-1][found])  # whoever shares it keeps what he has
        way.append(way[-1][found])
    last = find(way[-1], path[-1])
    if edit.op == "delete":
        for depth in range(len(path) - 1, -1, -1):
            del way[depth][find(way[depth], path[depth])]  # type: ignore[arg-type]
            if way[depth]:
                break
    elif isinstance(way[-1], list) and path[-1] == len(way[-1]):
        way[-1].append(edit.value)
    else:
        way[-1][path[-1] if last is None else last] = edit.value
    return values


def exists(values: Any, path: KeyPath) -> bool:
    for part in path:
        found = find(values, part)
        if found is None:
            return False
        values = values[found]
    return True


def at(values: Any, path: KeyPath) -> Any:
    for part in path:
        values = values[find(values, part)]
    return values


def sorted_form(value: Any) -> Any:
    """Types and values, without the order of keys."""
    if isinstance(value, dict):
        return sorted(((repr(key), sorted_form(item)) for key, item in value.items()), key=repr)
    if isinstance(value, list):
        return [sorted_form(item) for item in value]
    return repr(value)


def orders(value: Any, path: tuple[Any, ...] = ()) -> dict[tuple[Any, ...], list[Any]]:
    found: dict[tuple[Any, ...], list[Any]] = {}
    if isinstance(value, dict):
        found[path] = list(value)
        for key, item in value.items():
            found |= orders(item, (*path, key))
    return found


def lines_of(text: str) -> list[str]:
    text = text.removeprefix("\ufeff")  # it belongs to the file, not to its first line
    return re.findall("[^\r\n\x85\u2028\u2029]*(?:\r\n|[\r\n\x85\u2028\u2029])|[^\r\n\x85\u2028\u2029]+", text)


def line_number(text: str, offset: int) -> int:
    return len(re.findall("\r\n|[\r\n\x85\u2028\u2029]", text[:offset]))


def edited_lines(document: Document, edit: Edit) -> tuple[int, int]:
    """The lines an edit may change, as a half-open range: those of the topmost entry that it has to touch."""
    path = split_key(edit.key)
    spans = document.spans
    touched = path
    while (
        touched
        and (
            touched not in spans  # a missing key: the entry of its parent may grow
            or (
                edit.op == "delete" and touched[:-1] and len(at(document.values, touched[:-1])) == 1
            )  # an emptied parent
        )
    ):
        touched = touched[:-1]
    for depth in range(1, len(path)):  # entries of a flow collection share its lines
        span = spans.get(path[:depth])
        if span is not None and document.text[span.value_start : span.value_end].lstrip()[:1] in ("{", "["):
            touched = min(touched, path[:depth], key=len)
    if not touched:
        return 0, len(lines_of(document.text))
    span = spans[touched]
    start = line_number(document.text, span.key_start)
    if isinstance(touched[-1], int):  # an item may stand on a line below its dash
        above = start - 1
        lines = lines_of(document.text)
        while above > 0 and re.match(r"\s*(#|$)", lines[above]):
            above -= 1
        if re.match(r"( *|.*[ -])-\s*(#.*)?$", lines[above]):
            start = above
    return start, line_number(document.text, span.value_end) + 1


def check_lines(document: Document, edit: Edit, after: Document) -> None:
    before_lines, after_lines = lines_of(document.text), lines_of(after.text)
    if before_lines and not before_lines[-1].endswith(("\n", "\r")):  # the last line may gain a break
        before_lines = [line.rstrip("\r\n") for line in before_lines]
        after_lines = [line.rstrip("\r\n") for line in after_lines]
    added = len(after_lines) - len(before_lines)
    if added > 0 and any(after_lines[:k] + after_lines[k + added :] == before_lines for k in range(len(after_lines))):
        return  # one run of new lines, every old line is there
    start, end = edited_lines(document, edit)
    if edit.op == "delete" and re.match(r" *- ", before_lines[start]):
        end += 1  # `- a: 1`: the next key moves up to the dash
    assert after_lines[:start] == before_lines[:start]
    # Behind a block scalar blank lines and inner comments go with a deleted entry: they would become its text.
    while edit.op == "delete" and end < len(before_lines) and after_lines[start:] != before_lines[end:]:
        if before_lines[end].strip() and not before_lines[end].startswith(" "):
            break
        end += 1
    tail = before_lines[end:]
    assert after_lines[len(after_lines) - len(tail) :] == tail
    assert len(after_lines) >= start + len(tail)


@examples(400)
@given(documents_and_edits())
def test_an_edit_does_what_it_says_and_nothing_else(case: tuple[Document, Edit]) -> None:
    document, edit = case
    try:
        after = apply_edits(document, [edit])
    except EditRefused:
        event(f"{edit.op} refused")
        return
    event(f"{edit.op} done" if after.text != document.text else f"{edit.op}: nothing to do")
    if edit.op == "delete" and not exists(document.values, split_key(edit.key)):
        assert after.text == document.text
        return
    expected = intended(document.values, edit)
    assert sorted_form(after.values) == sorted_form(expected)
    for path, keys in orders(document.values).items():
        now = orders(after.values).get(path, keys)
        assert [key for key in now if key in keys] == [key for key in keys if key in now]
    if after.text != document.text:
        check_lines(document, edit, after)


@examples(200)
@given(documents_and_edits())
def test_twice_is_once(case: tuple[Document, Edit]) -> None:
    document, edit = case
    assume(not (edit.op == "delete" and any(isinstance(part, int) for part in split_key(edit.key))))
    try:
        once = apply_edits(document, [edit])
    except EditRefused:
        return
    assert apply_edits(once, [edit]).text == once.text


@examples(200)
@given(documents(), st.sampled_from(["new", "fsdp_config.x"]), plain_values)
def test_inserting_adds_lines_and_deleting_takes_them_away(text: str, key: str, value: Any) -> None:
    """In a block mapping a new key costs no other line anything, and deleting it restores the file."""
    document = read(text)
    assume("new" not in document.values and "fsdp_config" not in document.values)
    try:
        after = apply_edits(document, [Edit(op="insert", key=key, value=value)])
    except EditRefused:
        return
    remaining = iter(lines_of(after.text))
    bare = [line.rstrip("\r\n") for line in lines_of(text)]
    assert all(any(line == now.rstrip("\r\n") for now in remaining) for line in bare)
    back = apply_edits(after, [Edit(op="delete", key=key)])
    assert back.text.rstrip("\r\n") == text.rstrip("\r\n")
