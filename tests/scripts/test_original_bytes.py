"""Edits of scripts and notebooks in every encoding and layout: every byte that is not meant to change stays."""

import json
import random
import re

import pytest

from vramwise.documents.edit import EditRefused, apply_edits
from vramwise.documents.python.notebook import apart, cells_of, whole
from vramwise.documents.python.original import code_of
from vramwise.errors import ConfigError
from vramwise.trainers.scripts.reading import Reading, read_script
from vramwise.types import Edit
from vramwise.verbs.fix import fix

LINES = [
    "from trl import SFTConfig, SFTTrainer",
    "NOTE = 'a\u00e9'  # caf\u00e9",
    "args = SFTConfig(",
    "    seed=3,",
    '    optim="adamw_torch",  # \u00fcn\u00ef',
    "    max_steps=10,  # last",
    ")",
    'trainer = SFTTrainer("Qwen/Qwen3-0.6B", args=args)',
    "",
]
CODE = "\n".join(LINES)
SET = Edit(op="set", key="optim", value="sgd")
ADD = Edit(op="insert", key="packing", value=True)
DROP = Edit(op="delete", key="optim")
LINE = LINES[4] + "\n"
# An edit, what it changes in the code, and by what.
CHANGES = [(SET, "adamw_torch", "sgd"), (ADD, "# last", "# last\n    packing=True,"), (DROP, LINE, "")]


def read(data, name="train.py"):
    return read_script(name, data, Reading(bf16=True))


def changed(data, *edits, name="train.py"):
    return apply_edits(read(data, name), edits).file_bytes


def line_ends(code, kind, chance):
    """Return the code with other line ends; `mixed` draws one for each line."""
    kinds = {"lf": ["\n"], "crlf": ["\r\n"], "cr": ["\r"], "mixed": ["\n", "\r\n", "\r"]}[kind]
    return "".join(chance.choice(kinds) if letter == "\n" else letter for letter in code)


SCRIPTS = {
    "plain": lambda text: text.encode(),
    "mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "latin-1": lambda text: ("# -*- coding: latin-1 -*-\n" + text).encode("latin-1"),
    "cp1252": lambda text: ("#!/usr/bin/env python\n# coding=cp1252\n" + text).encode("cp1252"),
    "odd separators": lambda text: text.replace("ca", "\u2028\x0b\x1c\x85\x0c").encode(),
}


@pytest.mark.parametrize("ends", ["lf", "crlf", "cr", "mixed"])
@pytest.mark.parametrize("coded", SCRIPTS)
def test_a_script_keeps_its_bytes(coded, ends):
    before = SCRIPTS[coded](line_ends(CODE, ends, random.Random(1)))
    for edit, old, new in CHANGES:
        after = changed(before, edit)
        encoding = read(before).script.encoding
        assert code_of(after.decode(encoding)) == code_of(before.decode(encoding)).replace(old, new)
        assert kept_around(before, after) >= len(before) - len(old.encode()) - 1  # a removed line ends in `\r\n`


def kept_around(before, after):
    """Return how many bytes at the beginning and the end are the same."""
    shorter = min(len(before), len(after))
    front = next((at for at in range(shorter) if before[at] != after[at]), shorter)
    back = next((at for at in range(shorter - front) if before[-1 - at] != after[-1 - at]), shorter - front)
    return front + back


def escaped(text, chance, how):
    """Return the inside of a JSON string: `how` says which characters become `\\uXXXX`."""
    if how == "ascii":
        return json.dumps(text)[1:-1]
    if how == "some":
        return "".join(
            f"\\u{ord(one):04X}" if ord(one) < 0x10000 and chance.random() < 0.2 else json.dumps(one)[1:-1]
            for one in text
        )
    return json.dumps(text, ensure_ascii=False)[1:-1]


def cut(text, how, chance):
    """Return the strings of a cell's source."""
    if how == "lines":
        return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)", text)
    marks = sorted(chance.sample(range(1, len(text)), 30)) if how == "anywhere" else []
    return [text[start:end] for start, end in zip([0, *marks], [*marks, len(text)], strict=True)]


def notebook(text, chance, *, cuts, escapes, between=",\n    ", mark="", ends="\n"):
    strings = [f'"{escaped(one, chance, escapes)}"' for one in cut(text, cuts, chance)]
    source = strings[0] if cuts == "one" else f"[\n    {between.join(strings)}\n   ]"
    head = '{"cells": [{"cell_type": "markdown", "source": ["# \\u00e9 é"]},\n {"cell_type": "code", "x": 1.0,\n'
    tail = '\n "outputs": [{"text": "1e5 \\u0041"}]}],\n "metadata": {"big": 12345678901234567890}}\n'
    return (mark + f'{head} "source": {source},{tail}'.replace("\n", ends)).encode()


def source_of(data):
    return "".join(json.loads(data.decode("utf-8-sig"))["cells"][1]["source"])


@pytest.mark.parametrize("seed", range(40))
def test_a_notebook_keeps_its_bytes(seed):
    chance = random.Random(seed)
    text = line_ends(CODE.replace("ca", "\u2028\x0b😀"), chance.choice(["lf", "crlf", "mixed"]), chance)
    before = notebook(
        text,
        chance,
        cuts=chance.choice(["lines", "anywhere", "one"]),
        escapes=chance.choice(["ascii", "some", "none"]),
        between=chance.choice([",", ",\n    ", ", "]),
        mark=chance.choice(["", "\ufeff"]),
        ends=chance.choice(["\n", "\r\n"]),
    )
    for edit, old, new in CHANGES:
        after = changed(before, edit, name="x.ipynb")
        assert code_of(source_of(after)) == code_of(text).replace(old, new)
        # The length of what is replaced: at most six bytes a character, and a cut before each one.
        assert kept_around(before, after) >= len(before) - 15 * (len(old) + 1)
    assert changed(before, name="x.ipynb") == before


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_notebook_of_lines_changes_by_lines(ends):
    text = CODE.replace("\n", ends)
    before = notebook(text, random.Random(1), cuts="lines", escapes="none").decode()
    shown = json.dumps(ends)[1:-1]
    added = f'packing=True,{shown}",\n    "'
    line = json.dumps(LINES[4] + ends, ensure_ascii=False)
    assert changed(before.encode(), SET, name="x.ipynb").decode() == before.replace("adamw_torch", "sgd")
    assert changed(before.encode(), DROP, name="x.ipynb").decode() == before.replace(f"{line},\n    ", "")
    assert changed(before.encode(), ADD, name="x.ipynb").decode() == before.replace('")', f'"    {added})')


def test_keys_that_appear_twice_count_once():
    before = notebook(CODE, random.Random(1), cuts="lines", escapes="none").decode()
    for first in ('"cells": {"a": 1}, ', '"cells": 5, ', '"cells": [{"cell_type": "code", "source": "z = 1"}], '):
        text = before.replace("{", "{" + first, 1)
        assert changed(text.encode(), SET, name="x.ipynb").decode() == text.replace("adamw_torch", "sgd")


def test_what_cannot_be_written_is_refused_with_the_reason():
    with pytest.raises(EditRefused, match="latin-1 does not have"):
        changed(SCRIPTS["latin-1"](CODE), Edit(op="set", key="output_dir", value="\u4e2d"))
    with pytest.raises(ConfigError, match="cp932 text cannot be written back exactly"):
        read(b"# coding: cp932\nx = '\x87\x90'\n")
    for coding in ("undefined", "nowhere", "hex"):
        with pytest.raises(ConfigError, match="save it as UTF-8"):
            read(f"# coding: {coding}\n".encode() + b"\xe9 = 1\n")


@pytest.mark.parametrize("name", ["train.py", "x.ipynb"])
def test_a_file_is_written_in_its_own_bytes(name, tmp_path):
    code = CODE.replace("max_steps=10", "max_steps=10, bf16=True, fp16=True")
    if name == "train.py":
        before = ("# coding: latin-1\n" + code).encode("latin-1")
    else:
        before = notebook(code, random.Random(1), cuts="lines", escapes="ascii", mark="\ufeff", ends="\r\n")
    path = tmp_path / name
    path.write_bytes(before)
    report = next(fix([str(path)], unsafe=True))
    assert report.changed
    assert path.read_bytes() == report.after.file_bytes
    assert kept_around(before, path.read_bytes()) > len(before) - 40


@pytest.mark.parametrize("seed", range(10))
def test_what_surrounds_the_sources_is_kept_apart_and_put_back(seed):
    chance = random.Random(seed)
    text = notebook(CODE, chance, cuts="anywhere", escapes="some", mark=chance.choice(["", "\ufeff"])).decode()
    text = text.replace('"cells": [', '"cells": [{"source": "a", "cell_type": "code", "source": "b"}, {"source": 1}, ')
    code, around = apart(text)
    assert whole(code, around) == text
    assert (len(around), max(map(len, around)) < len(text)) == (3, True)
    assert [(one.number, one.source) for one in cells_of(code)] == [(one.number, one.source) for one in cells_of(text)]


def test_outputs_are_read_once_whatever_is_tried():
    picture = "iVBORw0K" * 100_000
    text = notebook(CODE, random.Random(1), cuts="lines", escapes="none").decode().replace("1e5", picture)
    document = read(text.encode(), "train.ipynb")
    after = apply_edits(document, [SET])
    assert len(after.script.raw) < len(picture)
    assert after.file_text == text.replace("adamw_torch", "sgd")
