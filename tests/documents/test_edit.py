"""Edits by span, one case at a time: text before, edit, text after."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from yaml_texts import CORPUS_FILES

from installed import needs_corpus
from vramwise.documents.document import parse_document
from vramwise.documents.edit import EditRefused, apply_edits, diff
from vramwise.documents.scalar import inline
from vramwise.errors import VramwiseError
from vramwise.types import Document, Edit, split_key


def read(text: str) -> Document:
    return parse_document("c.yml", text.encode())


def edit(text: str, *edits: Edit) -> str:
    """The edited text; a second time must change nothing (but list positions move when an item is deleted)."""
    once = apply_edits(read(text), edits)
    if not any(change.op == "delete" and change.key[-1].isdigit() for change in edits):
        assert apply_edits(once, edits).text == once.text
    return once.text


def put(key: str, value: Any, beside: str | None = None) -> Edit:
    return Edit(op="set", key=key, value=value, beside=beside)


def drop(key: str) -> Edit:
    return Edit(op="delete", key=key)


def refusal(text: str, change: Edit) -> str:
    with pytest.raises(EditRefused) as caught:
        apply_edits(read(text), [change])
    return str(caught.value)


SET = [
    # what, before, key, value, after
    ("scalar", "a: 1\nb: 2\n", "a", 5, "a: 5\nb: 2\n"),
    ("with a comment", "a: 1   # one\n", "a", 5, "a: 5   # one\n"),
    ("single quotes stay", "a: 'x'\n", "a", "yes", "a: 'yes'\n"),
    ("double quotes stay", 'a: "x" # c\n', "a", "y", 'a: "y" # c\n'),
    ("quotes go with the string", "a: 'x'\n", "a", 3, "a: 3\n"),
    ("empty value", "a:\nb: 1\n", "a", "x", "a: x\nb: 1\n"),
    ("empty value with a comment", "a:   # why\nb: 1\n", "a", True, "a: true   # why\nb: 1\n"),
    ("empty last value without final newline", "b: 1\na:", "a", None, "b: 1\na:"),
    ("to null", "a: 1\n", "a", None, "a: null\n"),
    ("value on the next line", "a:\n  one # c\n", "a", 2, "a:\n  2 # c\n"),
    ("plain over lines", "a: one\n  two # c\nb: 1\n", "a", 2, "a: 2 # c\nb: 1\n"),
    ("quoted over lines", 'a: "one\n  two"\nb: 1\n', "a", "x", 'a: "x"\nb: 1\n'),
    ("block scalar", "a: |\n  one\n\n  two\n\nb: 1\n", "a", 2, "a: 2\n\nb: 1\n"),
    ("block scalar with a header comment", "a: >- # why\n  one\nb: 1\n", "a", 2, "a: 2 # why\nb: 1\n"),
    ("last block scalar, no final newline", "a: |\n  one", "a", "x", "a: x"),
    ("nested", "a:\n    b: 1\n    c: 2\n", "a.c", 9, "a:\n    b: 1\n    c: 9\n"),
    ("list item", "a:\n  - 1 # x\n  - 2\n", "a.0", 9, "a:\n  - 9 # x\n  - 2\n"),
    ("empty list item", "a:\n  -\n  - 2\n", "a.0", 9, "a:\n  - 9\n  - 2\n"),
    ("key of a list item", "a:\n- p: 1\n  q: 2\n", "a.0.p", "x", "a:\n- p: x\n  q: 2\n"),
    ("flow mapping", "a: {b: 1, c: 2} # f\n", "a.b", 9, "a: {b: 9, c: 2} # f\n"),
    ("flow list", "a: [1, 2]\n", "a.1", "x, y", "a: [1, 'x, y']\n"),
    ("flow key without a value", "a: {b, c: 1}\n", "a.b", 9, "a: {b: 9, c: 1}\n"),
    ("flow empty value", "a: {b: , c: 1}\n", "a.b", 9, "a: {b: 9 , c: 1}\n"),
    ("flow over lines", "a: {\n  b: 1, # x\n  c: 2\n}\n", "a.b", 9, "a: {\n  b: 9, # x\n  c: 2\n}\n"),
    ("scalar to list", "a: 1 # c\nb: 2\n", "a", ["x", "y"], "a: # c\n  - x\n  - y\nb: 2\n"),
    ("scalar to mapping", "a: 1\nb: 2\n", "a", {"x": [1], "y": {}}, "a:\n  x:\n    - 1\n  y: {}\nb: 2\n"),
    ("scalar to empty list", "a: 1\n", "a", [], "a: []\n"),
    ("null to mapping", "a: # c\nb: 2\n", "a", {"x": 1}, "a: # c\n  x: 1\nb: 2\n"),
    ("block scalar to list", "a: | # c\n  t\n\nb: 2\n", "a", [1], "a: # c\n  - 1\n\nb: 2\n"),
    ("mapping to scalar", "a: # c\n  x: 1\n  # d\n  y: 2 # e\n# f\nb: 2\n", "a", 7, "a: 7 # c\n# f\nb: 2\n"),
    ("list to scalar", "a:\n- x\n- y\nb: 2\n", "a", 7, "a: 7\nb: 2\n"),
    ("list to list, indentation stays", "a:\n    - x\n    - y\nb: 2\n", "a", ["z"], "a:\n    - z\nb: 2\n"),
    (
        "list without indentation stays so",
        "a:\n- x\nb: 2\n",
        "a",
        ["z", {"k": 1, "l": 2}],
        "a:\n- z\n- k: 1\n  l: 2\nb: 2\n",
    ),
    ("list without indentation to mapping", "a:\n- x\nb: 2\n", "a", {"z": 1}, "a:\n  z: 1\nb: 2\n"),
    ("mapping to list", "a:\n   x: 1\nb: 2\n", "a", [1], "a:\n   - 1\nb: 2\n"),
    ("flow stays flow", "a: [1, 2] # c\n", "a", [3, {"x": "y"}], "a: [3, {x: y}] # c\n"),
    ("collection into a list item", "a:\n  - x # c\n", "a.0", {"p": 1}, "a:\n  - {p: 1} # c\n"),
    ("list item that is a mapping", "a:\n  - p: 1\n    q: 2\n  - x\n", "a.0", 3, "a:\n  - 3\n  - x\n"),
    ("anchor that nobody uses", "a: &x 1\n", "a", 2, "a: &x 2\n"),
    ("anchored mapping that nobody uses", "a: &x\n  b: 1\n", "a", {"c": 1}, "a: &x\n  c: 1\n"),
    ("alias", "a: &x 1\nb: *x # c\n", "b", 2, "a: &x 1\nb: 2 # c\n"),
    ("merged key is overridden here", "a: &x {k: 1}\nb:\n  <<: *x\n", "b.k", 2, "a: &x {k: 1}\nb:\n  <<: *x\n  k: 2\n"),
    ("tag goes", "a: !!str 5 # c\n", "a", 6, "a: 6 # c\n"),
    ("CRLF", "a: 1\r\nb: 2\r\n", "a", [1, 2], "a:\r\n  - 1\r\n  - 2\r\nb: 2\r\n"),
    ("CR", "a: 1\rb: 2\r", "a", {"x": 1}, "a:\r  x: 1\rb: 2\r"),
    ("mixed line ends", "a: 1\r\nb: 2\nc: 3\r\n", "b", [1], "a: 1\r\nb:\n  - 1\nc: 3\r\n"),
    ("byte order mark", "\ufeffa: 1\n", "a", 2, "\ufeffa: 2\n"),
    ("unicode", "é: 'ü' # ö\nb: 1\n", "é", "ñ", "é: 'ñ' # ö\nb: 1\n"),
    ("odd spacing", "a   :    1    # c\n", "a", 2, "a   :    2    # c\n"),
    ("quoted key", "'a': 1\n", "a", 2, "'a': 2\n"),
    ("dotted key", "a.b: 1\n", "a\\.b", 2, "a.b: 2\n"),
    ("digit key of a mapping", "a: {'0': x, 1: y}\n", "a.0", 2, "a: {'0': 2, 1: y}\n"),
    ("behind document marks", "---\na: 1\n...\n", "a", 2, "---\na: 2\n...\n"),
    ("the same value is left as written", "a: 0x10\nb: 'x'\n", "a", 16, "a: 0x10\nb: 'x'\n"),
]


@pytest.mark.parametrize(("before", "key", "value", "after"), [case[1:] for case in SET], ids=[case[0] for case in SET])
def test_set(before: str, key: str, value: Any, after: str) -> None:
    assert edit(before, put(key, value)) == after


INSERT = [
    # what, before, key, value, beside, after
    ("at the end", "a: 1\n", "b", 2, None, "a: 1\nb: 2\n"),
    ("no final newline", "a: 1", "b", 2, None, "a: 1\nb: 2"),
    ("beside", "a: 1 # x\nc: 3\n", "b", 2, "a", "a: 1 # x\nb: 2\nc: 3\n"),
    ("beside a block", "a:\n  x: 1\n\n# about c\nc: 3\n", "b", 2, "a", "a:\n  x: 1\nb: 2\n\n# about c\nc: 3\n"),
    ("behind comments in the block", "a:\n  x: 1\n  # y: 2\nc: 3\n", "b", 2, "a", "a:\n  x: 1\n  # y: 2\nb: 2\nc: 3\n"),
    ("beside a list", "a:\n- x\n- y\nc: 3\n", "b", 2, "a", "a:\n- x\n- y\nb: 2\nc: 3\n"),
    ("beside a block scalar", "a: |\n  t\n\nc: 3\n", "b", 2, "a", "a: |\n  t\nb: 2\n\nc: 3\n"),
    ("beside one that keeps blanks", "a: |+\n  t\n\nc: 3\n", "b", 2, "a", "a: |+\n  t\n\nb: 2\nc: 3\n"),
    ("last is one that keeps blanks", "a: |+\n  t\n\n", "b", 2, None, "a: |+\n  t\n\nb: 2\n"),
    ("before trailing comments", "a: 1\n\n# end\n", "b", 2, None, "a: 1\nb: 2\n\n# end\n"),
    ("beside is not there", "a: 1\nc: 3\n", "b", 2, "zzz", "a: 1\nc: 3\nb: 2\n"),
    ("nested", "a:\n   x: 1\nc: 3\n", "a.y", 2, None, "a:\n   x: 1\n   y: 2\nc: 3\n"),
    ("nested beside", "a:\n  x: 1\n  z: 1\n", "a.y", 2, "a.x", "a:\n  x: 1\n  y: 2\n  z: 1\n"),
    ("missing parent", "a: 1\n", "b.c.d", 2, None, "a: 1\nb:\n  c:\n    d: 2\n"),
    ("missing parent beside", "a: 1\nz: 1\n", "b.c", 2, "a", "a: 1\nb:\n  c: 2\nz: 1\n"),
    ("missing parent, four spaces", "a:\n    x: 1\n", "b.c", 2, None, "a:\n    x: 1\nb:\n    c: 2\n"),
    ("empty parent", "a: # c\nb: 1\n", "a.x", 2, None, "a: # c\n  x: 2\nb: 1\n"),
    ("null parent", "a: null\nb: 1\n", "a.x", 2, None, "a:\n  x: 2\nb: 1\n"),
    ("empty flow parent", "a: {}\n", "a.x", 2, None, "a: {x: 2}\n"),
    ("flow parent", "a: {b: 1}\n", "a.x", 2, None, "a: {b: 1, x: 2}\n"),
    ("flow parent with a last comma", "a: {b: 1,}\n", "a.x", 2, None, "a: {b: 1, x: 2,}\n"),
    ("flow parent beside", "a: {b: 1, c: 1}\n", "a.x", [1], "a.b", "a: {b: 1, x: [1], c: 1}\n"),
    ("flow parent over lines", "a: {\n  b: 1 # c\n}\n", "a.x", 2, None, "a: {\n  b: 1, x: 2 # c\n}\n"),
    ("flow root", "{a: 1}\n", "b", 2, None, "{a: 1, b: 2}\n"),
    ("into a list item", "a:\n  - p: 1\n  - q\n", "a.0.x", 2, None, "a:\n  - p: 1\n    x: 2\n  - q\n"),
    ("append", "a:\n  - p # c\nb: 1\n", "a.1", "q", None, "a:\n  - p # c\n  - q\nb: 1\n"),
    ("append a mapping", "a:\n- p\n", "a.1", {"x": 1, "y": 2}, None, "a:\n- p\n- x: 1\n  y: 2\n"),
    ("append to flow", "a: [1]\n", "a.1", 2, None, "a: [1, 2]\n"),
    ("append to an empty flow list", "a: []\n", "a.0", 2, None, "a: [2]\n"),
    ("list in the document's manner", "a:\n- p\n", "b", ["q"], None, "a:\n- p\nb:\n- q\n"),
    ("CRLF", "a: 1\r\nc: 3\r\n", "b", 2, "a", "a: 1\r\nb: 2\r\nc: 3\r\n"),
    ("CR without a final one", "a: 1\rc: 3", "b", 2, None, "a: 1\rc: 3\rb: 2"),
    ("indented root", "  a: 1\n", "b", 2, None, "  a: 1\n  b: 2\n"),
    ("before the end mark", "a: 1\n...\n", "b", 2, None, "a: 1\nb: 2\n...\n"),
    ("key that needs quotes", "a: 1\n", "yes", 2, None, "a: 1\n'yes': 2\n"),
    ("existing key is set", "a: 1\nb: 2\n", "a", 9, "b", "a: 9\nb: 2\n"),
]


@pytest.mark.parametrize(
    ("before", "key", "value", "beside", "after"), [case[1:] for case in INSERT], ids=[case[0] for case in INSERT]
)
def test_insert(before: str, key: str, value: Any, beside: str | None, after: str) -> None:
    assert edit(before, Edit(op="insert", key=key, value=value, beside=beside)) == after


DELETE = [
    # what, before, key, after
    ("key", "a: 1\nb: 2 # c\nc: 3\n", "b", "a: 1\nc: 3\n"),
    ("comments around stay", "# a\na: 1\n# b\nb: 2\n# c\nc: 3\n", "b", "# a\na: 1\n# b\n# c\nc: 3\n"),
    ("block", "a:\n  x: 1\n  # y\n  z: 2 # z\n\nb: 2\n", "a", "\nb: 2\n"),
    ("last without final newline", "a: 1\nb: 2", "b", "a: 1\n"),
    ("block scalar", "a: |\n  t\n  u\n\nb: 2\n", "a", "\nb: 2\n"),
    ("behind one that keeps blanks", "a: |+\n  t\nb: |\n  u\n\nc: 1\n", "b", "a: |+\n  t\nc: 1\n"),
    ("behind a block scalar, with a comment inside", "a: |\n  t\nb:\n  x: 1\n  # y\nc: 1\n", "b", "a: |\n  t\nc: 1\n"),
    ("empty value", "a:\nb: 2\n", "a", "b: 2\n"),
    ("nested", "a:\n  x: 1\n  y: 2\n", "a.x", "a:\n  y: 2\n"),
    ("last of a block", "a:\n  x: 1\nb: 2\n", "a.x", "b: 2\n"),
    ("last of nested blocks", "a:\n  x:\n    - y: 1\nb: 2\n", "a.x.0.y", "b: 2\n"),
    ("flow first", "a: {b: 1, c: 2}\n", "a.b", "a: {c: 2}\n"),
    ("flow middle", "a: {b: 1, c: 2, d: 3}\n", "a.c", "a: {b: 1, d: 3}\n"),
    ("flow last", "a: {b: 1, c: 2}\n", "a.c", "a: {b: 1}\n"),
    ("flow last with a comma", "a: {b: 1, c: 2,}\n", "a.c", "a: {b: 1,}\n"),
    ("flow only", "a: {b: 1}\nc: 2\n", "a.b", "c: 2\n"),
    ("flow over lines", "a: {\n  b: 1, # b\n  # c\n  c: 2\n}\n", "a.b", "a: {\n  # c\n  c: 2\n}\n"),
    ("flow root", "{a: 1, b: 2}\n", "a", "{b: 2}\n"),
    ("list item", "a:\n  - x # c\n  - y\n", "a.0", "a:\n  - y\n"),
    ("list item over lines", "a:\n- p: 1\n  q: 2\n- y\n", "a.0", "a:\n- y\n"),
    ("only list item", "a:\n- x\nb: 1\n", "a.0", "b: 1\n"),
    ("flow list item", "a: [1, 2, 3]\n", "a.1", "a: [1, 3]\n"),
    ("first key of a list item", "a:\n- p: 1 # c\n  q: 2\n", "a.0.p", "a:\n- q: 2\n"),
    ("first key, comment between", "a:\n- p: 1\n  # q\n  q: 2\n", "a.0.p", "a:\n-\n  # q\n  q: 2\n"),
    ("second key of a list item", "a:\n- p: 1\n  q: 2\n", "a.0.q", "a:\n- p: 1\n"),
    ("alias", "a: &x 1\nb: *x\nc: 1\n", "b", "a: &x 1\nc: 1\n"),
    ("unused anchor", "a: &x 1\nb: 2\n", "a", "b: 2\n"),
    ("merge stays", "a: &x {k: 1}\nb:\n  <<: *x\n  y: 1\n", "b.y", "a: &x {k: 1}\nb:\n  <<: *x\n"),
    ("CRLF", "a: 1\r\nb: 2\r\nc: 3\r\n", "b", "a: 1\r\nc: 3\r\n"),
    ("byte order mark", "\ufeffa: 1\nb: 2\n", "a", "\ufeffb: 2\n"),
    ("missing", "a: 1\n", "b.c", "a: 1\n"),
]


@pytest.mark.parametrize(("before", "key", "after"), [case[1:] for case in DELETE], ids=[case[0] for case in DELETE])
def test_delete(before: str, key: str, after: str) -> None:
    assert edit(before, drop(key)) == after


REFUSED = [
    ("anchored value", "a: &x 1\nb: *x\n", put("a", 2), "'a' has the anchor '&x'"),
    ("inside an anchored value", "a: &x {k: 1}\nb: *x\n", put("a.k", 2), "'a' has the anchor '&x'"),
    ("anchored value deleted", "a: &x 1\nb: *x\n", drop("a"), "'&x'"),
    ("inside an alias", "a: &x {k: 1}\nb: *x\n", put("b.k", 2), "'b' is an alias (*x)"),
    ("merged key deleted", "a: &x {k: 1}\nb: {<<: *x}\n", drop("b.k"), "merged in with '<<'"),
    ("inside a merged key", "a: &x {k: {l: 1}}\nb: {<<: *x}\n", put("b.k.l", 2), "merged in with '<<'"),
    ("override uncovers the merged one", "a: &x {k: 1}\nb: {<<: *x, k: 2}\n", drop("b.k"), "more than this key"),
    ("last key", "a: 1\n", drop("a"), "leave the config empty"),
    ("into a scalar", "a: 1\n", put("a.b", 2), "'a' is a single value"),
    ("beyond a list", "a: [1]\n", put("a.5", 2), "has 1 items"),
    ("position without a list", "a: 1\n", put("b.0", 2), "there is no list"),
    ("explicit key", "? a\n? b\n: 1\n", put("a", 2), "change it by hand"),
    ("a date", "a: 1\n", put("a", datetime.date(2024, 1, 1)), "type date"),
    ("a number as key", "a: 1\n", put("a", {1: 2}), "not text"),
    ("a lone surrogate", "a: 1\n", put("a", "\ud800"), "change it by hand"),
    ("a huge integer", "a: 1\n", put("a", 10**5000), "digits"),
]


@pytest.mark.parametrize(
    ("before", "change", "words"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_refused(before: str, change: Edit, words: str) -> None:
    assert words in refusal(before, change)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# c\nold:   8   # why\nz: 1\n", "# c\nnew:   9   # why\nz: 1\n"),
        ('"old": 8\r\nz: 1\r\n', "new: 9\r\nz: 1\r\n"),
        ("{a: 1, old: 8, z: 1}  # c\n", "{a: 1, new: 9, z: 1}  # c\n"),
        ("old:\nz: 1", "new: 9\nz: 1"),
        ("old: [1,\n  2]  # c\nz: 1\n", "new: 9  # c\nz: 1\n"),
        ("x: &v 8\nold: *v  # c\nz: 1\n", "x: &v 8\nnew: 9  # c\nz: 1\n"),
        # A name that is taken is no successor: its value is set where it stands, and the old key goes.
        ("old: 8  # c\nnew: 1  # d\n", "new: 9  # d\n"),
    ],
)
def test_a_key_inserted_beside_one_that_goes_takes_its_place(before: str, after: str) -> None:
    assert edit(before, put("new", 9, beside="old"), drop("old")) == after


def test_what_is_inserted_next_stands_behind_the_successor() -> None:
    edits = (put("b", 1, beside="old"), put("c", 2, beside="old"), drop("old"))
    assert edit("a: 0\nold: 8  # why\nz: 1\n", *edits) == "a: 0\nb: 1  # why\nc: 2\nz: 1\n"


def test_a_successor_keeps_a_value_that_does_not_change() -> None:
    value = {"x": 1, "y": [1, 2]}
    text = "old:   # c\n    x: 1   # d\n    y: [ 1,2 ]\nz: 1\n"
    assert edit(text, put("new", value, beside="old"), drop("old")) == text.replace("old", "new")


def test_a_value_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert "levels deep" in refusal("a: 1\n", put("a", endless))


def test_all_edits_or_none() -> None:
    before = read("a: 1\nb: 2\n")
    with pytest.raises(VramwiseError):
        apply_edits(before, [put("a", 5), put("b.c", 1)])
    assert before.text == "a: 1\nb: 2\n"
    assert before.values == {"a": 1, "b": 2}


def test_edits_build_on_each_other() -> None:
    assert edit("batch_size: 8\n", put("micro", 2, "batch_size"), drop("batch_size")) == "micro: 2\n"


def test_a_shared_value_may_change_where_nobody_sees_it() -> None:
    """Both users of the anchor have a `k` of their own, so the anchor's is theirs alone."""
    before = "a: &x\n  k: 1\n  j: 1\nb:\n  <<: *x\n  k: 7\n"
    assert edit(before, put("a.k", 2)) == before.replace("k: 1", "k: 2")


STRINGS = [
    "",
    " ",
    "x",
    "a b",
    "yes",
    "No",
    "null",
    "~",
    "1",
    "1.0",
    "5e-5",
    "1e5",
    "0x1",
    "1:30",
    "2024-01-01",
    "<<",
    "=",
]
STRINGS += [
    "- x",
    "-",
    "---",
    "...",
    "? x",
    ": x",
    "a: b",
    "a:",
    "a #b",
    "#b",
    "@x",
    "`x",
    "%x",
    "&x",
    "*x",
    "!x",
    "|",
    ">",
]
STRINGS += [
    "'",
    '"',
    "it's",
    "[",
    "]",
    "{",
    "}",
    ",",
    "a, b",
    "a\nb",
    "\t",
    "tab\there",
    "é",
    "\x85",
    "\u2028",
    "\ufeff",
    "\x07",
    "😀",
]
STRINGS += [
    "C:\\x",
    "http://x/y",
    "a ",
    " a",
    "{{ x }}",
    "\\n",
    ".inf",
    "0o7",
    "1_0",
    "+1",
    ".5",
    "nan",
    "true ",
    "a  b",
    "on:",
]
OTHERS = [None, True, False, 0, -1, 10**30, 0.0, -0.0, 5e-5, 1e16, 1e-300, 1.5, 1e22, float("inf"), float("-inf")]


@pytest.mark.parametrize("value", [*STRINGS, *OTHERS])
@pytest.mark.parametrize(
    "where", ["a: 1\n", "a: 'q'\n", 'a: "q"\n', "a:\n", "a: |\n  x\n", "a: {b: 1}\n", "a: [1]\n", "b: 1\n"]
)
def test_every_value_reads_back(value: Any, where: str) -> None:
    key = {"a: {": "a.b", "a: [": "a.0"}.get(where[:4], "a")
    found: Any = apply_edits(read(where), [put(key, value)]).values["a"]
    if isinstance(found, (dict, list)):
        (found,) = found.values() if isinstance(found, dict) else found
    assert type(found) is type(value)
    assert repr(found) == repr(value)


@pytest.mark.parametrize("key", [string for string in STRINGS if string and not string.isdigit()])
@pytest.mark.parametrize("where", ["b: 1\n", "{b: 1}\n"])
def test_every_key_reads_back(key: str, where: str) -> None:
    document = apply_edits(read(where), [put(key.replace(".", "\\."), 2)])
    assert document.values == {"b": 1, key: 2}


def test_plain_where_people_write_plain() -> None:
    words = [
        "flash_attention_2",
        "NousResearch/Llama-3.2-1B",
        "./out/lora",
        "adamw_torch_fused",
        "q_proj",
        "a b",
        "auto",
    ]
    assert [inline(word) for word in words] == words
    assert inline(5e-5) == "5.0e-05"
    assert inline("5e-5") == "'5e-5'"
    assert inline({"a": [1, "x"]}) == "{a: [1, x]}"


def test_diff() -> None:
    before = read("a: 1\nb: 2")
    after = apply_edits(before, [put("b", 3)])
    assert diff(before, before) == ""
    assert diff(before, after) == (
        "--- c.yml\n+++ c.yml\n@@ -1,2 +1,2 @@\n a: 1\n"
        "-b: 2\n\\ No newline at end of file\n+b: 3\n\\ No newline at end of file\n"
    )


def test_diff_keeps_line_ends() -> None:
    before = read("a: 1\r\nb: 2\r\n")
    after = apply_edits(before, [drop("a")])
    assert diff(before, after) == "--- c.yml\n+++ c.yml\n@@ -1,2 +1 @@\n-a: 1\r\n b: 2\r\n"


TYPICAL = [
    put("gradient_accumulation_steps", 7, "micro_batch_size"),
    put("eval_batch_size", 3, "micro_batch_size"),
    put("bf16", "auto"),
    put("pad_to_sequence_len", True, "sample_packing"),
    put("fsdp_config.offload_params", True),
    put("learning_rate", 5e-5),
    put("lora_target_modules", ["q_proj", "v_proj"]),
    put("datasets.0.type", "alpaca"),
    put("datasets", [{"path": "x", "type": "y"}]),
    drop("gradient_accumulation_steps"),
    drop("eval_batch_size"),
    drop("bf16"),
    drop("datasets.0.path"),
    drop("fsdp_config"),
    drop("special_tokens.pad_token"),
]


@pytest.mark.sampled(5)
@needs_corpus
@pytest.mark.parametrize("change", TYPICAL, ids=lambda change: f"{change.op} {change.key}")
def test_typical_edits_on_every_real_config(change: Edit) -> None:
    """Nothing but the lines of the edited entry changes, and no real config refuses a typical edit."""
    for path in CORPUS_FILES:
        before = parse_document(path.name, path.read_bytes())
        if change.key.startswith("datasets.0") and not before.values.get("datasets"):
            continue
        after = apply_edits(before, [change])
        lines = before.text.split("\n"), after.text.split("\n")
        same_head = _common(*lines)
        same_tail = _common(lines[0][same_head:][::-1], lines[1][same_head:][::-1])
        changed = lines[0][same_head : len(lines[0]) - same_tail]
        assert len(changed) <= _entry_lines(before, change), (path.name, diff(before, after))
        assert apply_edits(after, [change]).text == after.text


def _common(one: list[str], other: list[str]) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def _entry_lines(document: Document, change: Edit) -> int:
    """How many lines the edited entry has; where it does not exist, one line of its parent may change."""
    span = document.spans.get(split_key(change.key))
    if span is None:
        return 1 if "." in change.key else 0
    lines = document.text.count("\n", span.key_start, span.value_end) + 1
    return lines + 1 if change.op == "delete" and "." in change.key else lines
