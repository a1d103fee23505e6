"""Edits of scripts and notebooks: only the intended characters change."""

import json

import pytest

from vramwise.documents.edit import EditRefused, apply_edits
from vramwise.trainers.scripts.reading import Reading, read_script
from vramwise.types import Edit

SCRIPT = """from trl import SFTConfig, SFTTrainer
BATCH = 4  # rows
args = SFTConfig(
    per_device_train_batch_size=BATCH,
    optim="adamw_torch",  # plain
    max_steps=10 * 3,
)
trainer = SFTTrainer("Qwen/Qwen3-0.6B", args=args)
"""


def document(text=SCRIPT, path="train.py"):
    return read_script(path, text.encode(), Reading(bf16=True))


def edited(*edits, text=SCRIPT):
    return apply_edits(document(text), edits).text


def test_a_literal_changes_where_it_is_written():
    assert edited(Edit(op="set", key="per_device_train_batch_size", value=2)) == SCRIPT.replace("= 4", "= 2")
    assert edited(Edit(op="set", key="optim", value="sgd")) == SCRIPT.replace('"adamw_torch"', '"sgd"')


def test_an_argument_is_added_in_the_style_of_its_call():
    after = edited(Edit(op="insert", key="packing", value=True))
    assert after == SCRIPT.replace("    max_steps=10 * 3,\n", "    max_steps=10 * 3,\n    packing=True,\n")
    short = "from trl import SFTConfig, SFTTrainer\nt = SFTTrainer('m', args=SFTConfig(max_steps=1))\n"
    assert "SFTConfig(max_steps=1, packing=True)" in edited(Edit(op="insert", key="packing", value=True), text=short)


def test_an_argument_is_taken_out_with_its_line():
    assert edited(Edit(op="delete", key="optim")) == SCRIPT.replace('    optim="adamw_torch",  # plain\n', "")


def test_what_is_computed_is_left_to_the_user():
    with pytest.raises(EditRefused, match="computed at line 6"):
        edited(Edit(op="set", key="max_steps", value=5))


def test_line_ends_and_marks_stay():
    text = "\ufeff" + SCRIPT.replace("\n", "\r\n")
    found = read_script("train.py", text.encode(), Reading(bf16=True))
    after = apply_edits(found, [Edit(op="set", key="optim", value="sgd")])
    assert after.file_text == text.replace("adamw_torch", "sgd")


@pytest.mark.parametrize("indent", [1, None])
@pytest.mark.parametrize("lines", [True, False])
def test_a_notebook_changes_in_one_cell_alone(indent, lines):
    source = SCRIPT.splitlines(keepends=True) if lines else SCRIPT
    notebook = {
        "cells": [
            {"cell_type": "markdown", "metadata": {}, "source": ["# Title ü"]},
            {
                "cell_type": "code",
                "id": "a",
                "metadata": {},
                "outputs": [{"text": "x"}],
                "source": ["!pip install trl==1.9.0"],
            },
            {"cell_type": "code", "id": "b", "metadata": {}, "outputs": [], "source": source},
        ],
        "nbformat": 4,
    }
    text = json.dumps(notebook, indent=indent, ensure_ascii=False)
    found = document(text, "x.ipynb")
    assert found.script.versions == {"trl": "1.9.0"}
    assert found.cell(found.script.line) == (3, 8)
    after = apply_edits(found, [Edit(op="set", key="optim", value="sgd")])
    assert after.file_text == text.replace("adamw_torch", "sgd")
    added = apply_edits(found, [Edit(op="insert", key="packing", value=True)])
    changed = json.loads(added.file_text)
    assert "".join(changed["cells"][2]["source"]).count("packing=True") == 1
    assert changed["cells"][:2] == notebook["cells"][:2]
