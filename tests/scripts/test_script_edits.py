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


def test_a_comment_stays_on_its_line():
    text = SCRIPT.replace("max_steps=10 * 3,", "max_steps=10 * 3  # keep")
    after = edited(Edit(op="insert", key="packing", value=True), text=text)
    assert after == text.replace("10 * 3  # keep\n", "10 * 3,  # keep\n    packing=True,\n")
    last = SCRIPT.replace("    max_steps=10 * 3,\n)", "    seed=3, max_steps=1)").replace("plain", "keep, this")
    assert edited(Edit(op="delete", key="max_steps"), text=last) == last.replace(", max_steps=1", "")
    assert edited(Edit(op="delete", key="seed"), text=last) == last.replace("seed=3, ", "")
    alone = last.replace("seed=3, ", "")
    assert edited(Edit(op="delete", key="max_steps"), text=alone) == alone.replace("max_steps=1", "")


@pytest.mark.parametrize("mapping", ['{"fp16": True}', "dict(fp16=True)"])
def test_a_value_in_an_unpacked_mapping_is_changed_there(mapping):
    text = f"from trl import SFTConfig, SFTTrainer\nheld = {mapping}\nt = SFTTrainer('m', args=SFTConfig(**held))\n"
    after = edited(Edit(op="set", key="fp16", value=False), Edit(op="insert", key="bf16", value=True), text=text)
    assert after == text.replace("True", "False").replace("**held", "**held, bf16=True")
    computed = text.replace("True", "not None")
    with pytest.raises(EditRefused, match="computed at line 3"):
        edited(Edit(op="set", key="fp16", value=False), text=computed)


def test_nothing_is_added_beside_an_unknown_mapping():
    text = "from trl import SFTConfig, SFTTrainer\nt = SFTTrainer('m', args=SFTConfig(**settings()))\n"
    with pytest.raises(EditRefused, match="unpacks a mapping that is not known and may hold 'bf16'"):
        edited(Edit(op="insert", key="bf16", value=True), text=text)


@pytest.mark.parametrize(
    ("edit", "old", "new"),
    [
        (
            Edit(op="set", key="gradient_checkpointing_kwargs.use_reentrant", value=False),
            "True,  # keep",
            "False,  # keep",
        ),
        (Edit(op="insert", key="gradient_checkpointing_kwargs.é", value="ü"), "1,\n", '1,\n        "é": "ü",\n'),
        (Edit(op="delete", key="gradient_checkpointing_kwargs.x"), "        'x': 1,\n", ""),
    ],
)
def test_only_an_entry_of_a_dict_changes(edit, old, new):
    entries = "{  # ü\n        'use_reentrant': True,  # keep\n        'x': 1,\n    }"
    text = SCRIPT.replace("max_steps=10 * 3", f"gradient_checkpointing_kwargs={entries}")
    assert edited(edit, text=text) == text.replace(old, new)


def test_a_commented_mapping_that_is_no_literal_of_constants_is_left_to_the_user():
    text = SCRIPT.replace(
        "max_steps=10 * 3", "gradient_checkpointing_kwargs={  # why\n        **{'use_reentrant': True}}"
    )
    with pytest.raises(EditRefused, match="by hand"):
        edited(Edit(op="set", key="gradient_checkpointing_kwargs.use_reentrant", value=False), text=text)


def test_an_argument_that_replaces_another_takes_its_line_and_comment():
    text = SCRIPT.replace("max_steps=10 * 3,", "warmup_ratio=0.1,  # a tenth")
    insert = Edit(op="insert", key="warmup_steps", value=0.1, beside="warmup_ratio")
    drop = Edit(op="delete", key="warmup_ratio")
    assert edited(insert, drop, text=text) == text.replace("warmup_ratio", "warmup_steps")
    other = Edit(op="insert", key="warmup_steps", value=5, beside="warmup_ratio")
    assert edited(other, drop, text=text) == text.replace("warmup_ratio=0.1", "warmup_steps=5")
