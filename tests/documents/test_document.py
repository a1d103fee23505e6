"""Reading: the values of `safe_load`, the place of every key, and one clear sentence for everything else."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from yaml_texts import CORPUS_FILES, documents, examples, reference

from installed import needs_corpus
from vramwise.documents import compose as composing
from vramwise.documents.compose import Node, compose, compose_slowly
from vramwise.documents.document import parse_document
from vramwise.errors import ConfigError
from vramwise.limits.ceilings import CONFIG_BYTES, CONFIG_DEPTH, CONFIG_VALUES
from vramwise.types import Document, KeyPath


def read(text: str | bytes) -> Document:
    return parse_document("c.yml", text.encode() if isinstance(text, str) else text)


def refusal(text: str | bytes) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read(text)
    return caught.value


BAD = [
    # what, text, line, column, a part of the sentence
    ("invalid UTF-8", b"a: 1\nb: \xff\n", 2, 4, "0xff is not valid UTF-8"),
    ("invalid UTF-8 behind é", "a: é".encode() + b"\xe9\n", 1, 5, "not valid UTF-8"),
    ("UTF-16", "a: 1\n".encode("utf-16"), 1, 1, "UTF-16"),
    ("NUL", "a: 1\nb: x\0y\n", 2, 5, "U+0000"),
    ("control character", "a: \x1b[31m\n", 1, 4, "U+001B"),
    ("tab as indentation", "a:\n\tb: 1\n", 2, 1, "indented with a tab"),
    ("tab behind spaces", "a:\n  \tb: 1\n", 2, 3, "indented with a tab"),
    ("tab before a comment", "a: 1\t# c\n", 1, 5, "unexpected tab between words"),
    ("colon in a value", "a: b: c\n", 1, 5, "': '"),
    ("no colon", "a: 1\nfoo\nb: 2\n", 2, 1, "there is no ': '"),
    ("list in a mapping", "a: 1\n- b\n", 2, 1, "indentation"),
    ("wrong indentation", "a:\n    b: 1\n  c: 2\n", 3, 3, "indentation"),
    ("item on the key's line", "a: - b\n", 1, 4, "'- ' item"),
    ("open bracket", "a: [1, 2\nb: 3\n", 1, 4, "'['"),
    ("open brace", "a: {x: 1\nb: 3\n", 1, 4, "'{'"),
    ("open quote", 'a: 1\nb: "x\nc: 1\n', 2, 4, "closing quote"),
    ("bad start", "a: @b\n", 1, 4, "cannot start with '@'"),
    ("percent", "a: %b\n", 1, 4, "cannot start with '%'"),
    ("glob", "path: *.json\n", 1, 8, "quote"),
    ("undefined alias", "a: *x\n", 1, 4, "'*x'"),
    ("duplicate anchor", "a: &x 1\nb: &x 2\n", 2, 4, "line 1"),
    ("alias of itself", "a: &x [*x]\n", 1, 8, "never end"),
    ("several documents", "a: 1\n---\nb: 2\n", 2, 1, "second YAML document"),
    ("text behind the end", "a: 1\n...\nb: 2\n", 3, 1, "document ended"),
    ("empty", "", 1, 1, "no content"),
    ("empty document", "---\n", 1, 1, "no content"),
    ("only comments", "# a: 1\n", 1, 1, "only comments"),
    ("a list", "# x\n- a\n", 2, 1, "a list"),
    ("a scalar", "hello\n", 1, 1, "a single value"),
    ("null", "null\n", 1, 1, "a single value"),
    (
        "python tag",
        "a: !!python/object/apply:os.system ['ls']\n",
        1,
        4,
        "'!!python/object/apply:os.system' is not allowed",
    ),
    ("custom tag", "a: 1\nb: !foo bar\n", 2, 4, "'!foo' is not allowed"),
    ("custom tag on a key", "!foo a: 1\n", 1, 1, "'!foo' is not allowed"),
    ("custom tag behind an anchor", "b: &x !foo {a: 1}\n", 1, 7, "'!foo' is not allowed"),
    ("custom tag on the document", "--- !foo\na: 1\n", 1, 5, "'!foo' is not allowed"),
    ("undefined handle", "a: !e!foo x\n", 1, 4, "tag"),
    ("boolean key", "on: 1\n", 1, 1, "the key 'on' as True"),
    ("number key", "a: 1\n5: 1\n", 2, 1, "the key '5' as 5"),
    ("template as key", "{{ x }}: 1\n", 1, 2, "cannot be a key"),
    ("list as key", "? [a]\n: 1\n", 1, 3, "cannot be a key"),
    ("bare =", "a: =\n", 1, 4, "quote it"),
    ("bare <<", "a: [<<]\n", 1, 5, "quote it"),
    ("merge of a scalar", "a: 1\nb:\n  <<: 3\n", 3, 7, "'<<' can only merge"),
    ("merge of a list of scalars", "b: {<<: [1]}\n", 1, 10, "'<<' can only merge"),
    ("impossible date", "a: 2024-13-45\n", 1, 4, "timestamp"),
    ("empty binary number", "a: 0b_\n", 1, 4, "int"),
    ("tag that does not fit", "a: !!int [1]\n", 1, 4, "does not match"),
    ("not an integer", "a: !!int x\n", 1, 4, "int"),
    ("not a boolean", "a: !!bool maybe\n", 1, 4, "bool"),
    ("long number", "a: " + "9" * 5000 + "\n", 1, 4, "5,000 digits"),
    ("long sexagesimal", "a: 1" + ":10" * 5000 + "\n", 1, 4, "digits"),
    ("bad escape", 'a: "\\q"\n', 1, 6, "escape"),
    ("escape beyond Unicode", 'a: "\\U00110000"\n', 1, 7, "out of range"),
    ("surrogate", 'a: "\\ud800"\n', 1, 4, "surrogate"),
    ("text behind |", "a: | text\n", 1, 6, "end of the line"),
    ("YAML 2", "%YAML 2.0\n---\na: 1\n", 1, 1, "version"),
]


@pytest.mark.parametrize(("text", "line", "column", "words"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input_is_refused_with_its_place(text: str | bytes, line: int, column: int, words: str) -> None:
    error = refusal(text)
    assert words in error.message
    assert (error.line, error.column) == (line, column)
    assert "\n" not in error.message


def test_large_files_are_refused_before_they_are_read() -> None:
    start = time.process_time()
    assert "larger than 1 MiB" in refusal(b"a: 1\n" * (CONFIG_BYTES // 5 + 1)).message
    assert time.process_time() - start < 0.5


def test_billion_laughs() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    error = refusal("\n".join(lines))
    assert f"expand to more than {CONFIG_VALUES:,} values" in error.message
    assert error.line == 5


def test_billion_laughs_by_merging() -> None:
    lines = ["a0: &a0 {x: 1, y: 2}"]
    lines += [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}" for i in range(1, 10)]
    assert "expand" in refusal("\n".join(lines)).message


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 5000,
        "a: " + "{a: " * 5000,
        "\n".join(" " * i + "a:" for i in range(1000)),
        "a:\n" + "- " * 20000 + "x\n",
    ],
    ids=["flow lists", "flow mappings", "block mappings", "block lists"],
)
def test_deep_nesting(text: str) -> None:
    assert f"more than {CONFIG_DEPTH} levels" in refusal(text).message


def test_deep_nesting_through_aliases() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 100)]
    error = refusal("\n".join(lines))
    assert "levels" in error.message
    assert error.line is not None
    assert CONFIG_DEPTH - 3 < error.line <= CONFIG_DEPTH + 1


def test_many_values_without_aliases() -> None:
    assert f"{CONFIG_VALUES:,}" in refusal("a: [" + "1, " * CONFIG_VALUES + "1]").message


SEMANTICS = """
bools: [yes, no, on, off, True, FALSE, y, n]
ints: [1, 0x1f, 017, 0b11, 1_000, 1:30, +3, -0]
floats: [1.5, 5e-5, 5.0e-5, 1e5, .5, -.inf, .nan, 1.]
nulls: [null, ~, Null, ]
empty:
dates: [2024-01-01, 2024-01-01T10:00:00Z, 2001-12-14 21:59:43.10 -5]
strings: ['1', "a\\tb", plain text, 1.2.3, 0o17, 1e5.0]
text: |
  keep
   this
folded: >-
  a
  b

base: &base {x: 1, y: [1, 2]}
other: &other {x: 9, z: 3}
copy: *base
merged:
  <<: [*base, *other]
  y: own
twice: {<<: *base, <<: *other}
tagged: [!!str 5, !!int "7", !!float 1, !!set {a, b}, !!binary aGk=]
pairs: !!pairs [a: 1, a: 2]
nested: {3: a, true: b, 2.5: c, =: d}
"""


def test_values_are_those_of_safe_load() -> None:
    expected = reference(SEMANTICS)
    found = read(SEMANTICS).values
    assert repr(found) == repr(expected)
    assert list(found["merged"]) == list(expected["merged"])


@pytest.mark.parametrize("key", ["2024-01-01", "2024-01-01 10:00:00", "!!binary aGk="])
def test_a_date_or_bytes_cannot_be_a_key(key: str) -> None:
    error = refusal(f"a:\n  {key}: 1\n")
    assert "quote it" in error.message
    assert error.line == 2


@pytest.mark.parametrize("number", ["9" * 65, "0x" + "f" * 70, "1." + "3" * 70, "1" + ":59" * 30])
def test_numbers_beyond_sense_are_refused(number: str) -> None:
    assert "digits: quote it if it is text" in refusal(f"a: {number}\n").message


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_text_is_kept_and_offsets_index_it(newline: str, bom: str) -> None:
    text = bom + newline.join(["# é", "a: 1 # x", "b:", "  c: [1, 'two']", "  d: |", "    text", "", "e: last"])
    document = read(text)
    assert document.text == text
    assert cut(document) == {
        ("a",): ("a", "1"),
        ("b",): ("b", text[text.index("c: [") : text.index("text") + 4]),
        ("b", "c"): ("c", "[1, 'two']"),
        ("b", "c", 0): ("", "1"),
        ("b", "c", 1): ("", "'two'"),
        ("b", "d"): ("d", f"|{newline}    text"),
        ("e",): ("e", "last"),
    }


def cut(document: Document) -> dict[KeyPath, tuple[str, str]]:
    text = document.text
    return {
        path: (text[span.key_start : span.key_end], text[span.value_start : span.value_end])
        for path, span in document.spans.items()
    }


def test_spans_of_lists_aliases_merges_and_empty_values() -> None:
    document = read("a: &x\n  k: 1\nb: *x\nc:\n  <<: *x\n  own: 2\nd:\n- 1\n- p: q\ne:\nf: {g: , h}\n3x: &y 5\n")
    assert cut(document)[("a",)] == ("a", "&x\n  k: 1")
    assert cut(document)[("b",)] == ("b", "*x")
    assert cut(document)[("b", "k")] == ("k", "1")
    assert cut(document)[("d", 1, "p")] == ("p", "q")
    assert cut(document)[("e",)] == ("e", "")
    assert cut(document)[("f", "h")] == ("h", "")
    assert cut(document)[("3x",)] == ("3x", "&y 5")
    shared = {path for path, span in document.spans.items() if span.shared}
    assert shared == {("b",), ("b", "k"), ("c", "k")}


def signature(node: Node | None) -> object:
    if node is None:
        return None
    value = node.yaml.value if node.kind == "scalar" else None
    head = (node.kind, node.start, node.end, node.full_end, node.style, node.flow, node.anchor, node.yaml.tag, value)
    return head, [signature(item) for item in node.items], [(signature(k), signature(v)) for k, v in node.pairs]


def outcome(text: str, *, slowly: bool) -> object:
    try:
        return signature(compose_slowly(text) if slowly else compose(text))
    except ConfigError as error:
        return error.message, error.line, error.column


ATOMS = [
    "a",
    "1",
    "- ",
    "-",
    "---",
    "...",
    ": ",
    ":",
    " ",
    "  ",
    "\n",
    "\n  ",
    "\n- ",
    "# c",
    " #",
    "{",
    "}",
    "[",
    "]",
    ",",
]
ATOMS += [
    ", ",
    '"',
    "'",
    "|",
    ">",
    "|+",
    ">-",
    "&a ",
    "*a",
    "<<: ",
    "~",
    "k: v\n",
    "\n\n",
    "%",
    "@",
    "=",
    "\\",
    "x:y",
    "?",
    "!",
]
fragments = st.lists(st.sampled_from(ATOMS), max_size=25).map("".join)


@pytest.mark.skipif(composing._FAST_LOADER is None, reason="PyYAML is built without libyaml: install its wheel")
@examples(500)
@given(st.one_of(fragments, documents()))
def test_the_fast_loader_reads_what_the_slow_one_reads(text: str) -> None:
    assert outcome(text, slowly=False) == outcome(text, slowly=True)


@pytest.mark.skipif(composing._FAST_LOADER is None, reason="PyYAML is built without libyaml: install its wheel")
def test_the_fast_loader_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composing, "compose_slowly", None)
    assert read("a: 1\n").values == {"a": 1}


def attempt(data: bytes) -> Document | ConfigError:
    try:
        return parse_document("x", data)
    except ConfigError as error:
        return error


def agrees_with_safe_load(data: bytes) -> None:
    """Either ConfigError with a place inside the text, or exactly what safe_load gives."""
    result = attempt(data)
    if isinstance(result, Document):
        assert result.text.encode() == data
        assert repr(result.values) == repr(reference(result.text))
    else:
        lines = re.split(b"\r\n|\r|\n", data)
        assert result.line is not None
        assert result.column is not None
        assert 1 <= result.line <= len(lines)
        assert 1 <= result.column <= len(lines[result.line - 1]) + 1


@examples(300)
@given(st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode), fragments.map(str.encode)))
def test_random_bytes_never_crash(data: bytes) -> None:
    agrees_with_safe_load(data)


@examples(300)
@given(
    documents(),
    st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from([*ATOMS, "\t", "\0", "\xff", "é"])), max_size=4),
)
def test_damaged_configs_never_crash(text: str, damage: list[tuple[int, str]]) -> None:
    for where, what in damage:
        at = where % (len(text) + 1)
        text = text[:at] + what + text[at + where % 3 :]
    agrees_with_safe_load(text.encode())


@examples(200)
@given(documents())
def test_spans_of_random_documents_read_back_as_their_values(text: str) -> None:
    """The strongest thing to say of a span: cut out and read alone, it is the value (where it needs no context)."""
    try:
        document = read(text)
    except ConfigError:
        return
    for path, span in document.spans.items():
        assert 0 <= span.key_start <= span.key_end <= span.value_start <= span.value_end <= len(text)
        written = text[span.value_start : span.value_end]
        if any(sign in written for sign in "\r\n*|>") or not written:
            continue
        value = document.values
        for part in path:
            value = value[part]
        if written[:1] != "&":
            assert repr(yaml.safe_load(f"v:\n  {written}")["v"]) == repr(value)


@needs_corpus
def test_the_corpus_is_read_as_safe_load_reads_it() -> None:
    assert len(CORPUS_FILES) == 194
    for path in CORPUS_FILES:
        data = path.read_bytes()
        document = parse_document(str(path), data)
        assert repr(document.values) == repr(reference(data.decode())), path
        assert signature(compose(document.text)) == signature(compose_slowly(document.text)), path


def test_the_path_is_only_a_name(tmp_path: Path) -> None:
    path = str(tmp_path / "missing.yml")
    assert parse_document(path, b"a: 1\n").path == path


@pytest.mark.parametrize(
    ("text", "key", "first", "last", "values"),
    [
        ("a: 1\nb: 2\na: 3\n", "a", 1, 3, {"a": 3, "b": 2}),
        ("a:\n  - x: 1\n    x: 2\n", "x", 2, 3, {"a": [{"x": 2}]}),
        ("a: {x: 1, x: 2}\n", "x", 1, 1, {"a": {"x": 2}}),
    ],
)
def test_of_a_key_that_stands_twice_the_last_counts(text, key, first, last, values):
    document = parse_document("x.yml", text.encode())
    assert document.values == values
    (found,) = document.duplicates
    assert (found.key, found.first.line, found.last.line) == (key, first, last)
