"""Scripts and notebooks through every door: files, folders, texts, the page."""

import json
import time
from pathlib import Path

import pytest

from vramwise.api import check, fix, predict
from vramwise.documents.python.notebook import cells_of
from vramwise.opening.files import config_files
from vramwise.page.answers import Answers

SCRIPT = (Path(__file__).parents[2] / "examples" / "train_qlora.py").read_text("utf-8")


def notebook(code):
    """As Colab writes it: metadata first, cells last."""
    cells = [
        {"cell_type": "markdown", "source": ["# title"], "metadata": {}},
        {"cell_type": "code", "source": code.splitlines(keepends=True), "outputs": [{"text": "o"}], "metadata": {}},
    ]
    head = {"nbformat": 4, "nbformat_minor": 0, "metadata": {"widgets": "w" * 5000}}
    return json.dumps({**head, "cells": cells}, indent=1)


NOTEBOOK = notebook(SCRIPT)
OPTIONS = {"gpu": "rtx-4090", "text_alone": True}


@pytest.mark.parametrize("text", [SCRIPT, NOTEBOOK], ids=["script", "notebook"])
def test_a_text_is_checked_and_predicted(text):
    [report] = check(text, **OPTIONS)
    assert report.error is None
    assert predict(text, **OPTIONS).fits


def test_script_and_notebook_get_the_same_figures():
    found = [predict(text, **OPTIONS).needs.highest_reserved_bytes for text in (SCRIPT, NOTEBOOK)]
    assert found[0] == found[1]


def test_a_fixed_notebook_keeps_all_but_one_source():
    text = notebook(SCRIPT.replace("packing=True,", "packing=True,\n        fp16=True,"))
    [report] = fix(text, **OPTIONS, unsafe=True)
    assert report.changed
    after = report.after.file_text
    assert json.loads(after)["cells"][0] == json.loads(text)["cells"][0]
    assert json.loads(after)["cells"][1]["outputs"] == [{"text": "o"}]
    assert len(cells_of(after)) == 1


@pytest.mark.parametrize("text", [SCRIPT, NOTEBOOK], ids=["script", "notebook"])
def test_the_page_takes_it(text):
    request = {
        "ask": "look",
        "text": text,
        "settings": {"gpu": "rtx-4090", "gpus": 1, "versions": "", "alloc_conf": ""},
    }
    found = json.loads(Answers().answer(json.dumps(request), None, None))
    assert found["ok"], found


def test_in_a_folder_only_what_trains_is_read(tmp_path):
    """10,000 files take half a second; here fewer, with room for a slow machine."""
    for number in range(1000):
        (tmp_path / f"m{number}.py").write_text("import os\nclass Trainer:\n    pass\n" * 20)
    (tmp_path / "train.py").write_text(SCRIPT)
    start = time.process_time()
    assert config_files([str(tmp_path)]) == [str(tmp_path / "train.py")]
    assert time.process_time() - start < 2
