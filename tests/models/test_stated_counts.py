"""The number of parameters that a text states, and the plain model taken for it."""

import json
import re

import pytest

from vramwise.models.stated_counts import base_parameters

PEFT = "trainable params: 41,943,040 || all params: 8,072,204,288 || trainable%: 0.5196"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (PEFT, 8_030_261_248),
        ("trainable params: 8,030,261,248 || all params: 8,030,261,248 || trainable%: 100", 8_030_261_248),
        (" \\        /    Trainable parameters = 41,943,040 of 8,072,204,288 (0.52% trained)", 8_030_261_248),
        ('"num_parameters": 7241732096,', 7_241_732_096),
        ("total_params = 7_241_732_096", 7_241_732_096),
        ("Number of parameters: 7,241,732,096", 7_241_732_096),
        ("trainable params: 39976960 || all params: 3540389888 || trainable%: 1.12", None),  # packed in 4 bits
        ("Number of trainable parameters = 41,943,040", None),
        ("seed = 7241732096", None),
    ],
)
def test_stated_counts(text, count):
    assert base_parameters(text) == count


SCRIPT = """from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("acme/secret", torch_dtype="bfloat16")
{line}
Trainer(model=model, args=TrainingArguments("out", per_device_train_batch_size=1, bf16=True)).train()
"""


def test_code_that_states_a_count_gives_a_model_with_a_margin(tmp_path, vramwise):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.format(line="NUM_PARAMETERS = 8_030_261_248"))
    found = " ".join(vramwise("predict", str(path), "--gpu", "h200").stdout.split())
    assert "acme/secret is unknown, a plain model of as many parameters as stated is taken" in found
    assert re.search(r"it may need up to 5\d % more or 4\d % less", found)
    path.write_text(SCRIPT.format(line="# num_parameters = 8_030_261_248"))
    assert vramwise("predict", str(path), "--gpu", "h200").exit_code == 2


def test_outputs_of_a_notebook_give_a_model(tmp_path, vramwise):
    cell = {"cell_type": "code", "metadata": {}, "execution_count": 1, "outputs": []}
    cells = [cell | {"source": SCRIPT.format(line="")}]
    path = tmp_path / "train.ipynb"
    whole = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}
    path.write_text(json.dumps(whole))
    assert vramwise("predict", str(path), "--gpu", "h200").exit_code == 2
    cells[0]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["loading\n", PEFT + "\n"]}]
    path.write_text(json.dumps(whole))
    found = vramwise("predict", str(path), "--gpu", "h200")
    assert found.exit_code == 0
    assert "a plain model of as many parameters as stated is taken" in " ".join(found.stdout.split())


def test_a_log_that_prints_a_count_gives_diagnose_a_model(tmp_path, vramwise):
    path, log = tmp_path / "train.py", tmp_path / "train.log"
    path.write_text(SCRIPT.format(line=""))
    failed = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of "
    failed += "23.52 GiB of which 512.00 MiB is free. Of the allocated memory 21.00 GiB is allocated by PyTorch"
    log.write_text(f"{failed}\n")
    without = vramwise("diagnose", str(log), "--config", str(path)).output
    log.write_text(f"{PEFT}\n{failed}\n")
    with_count = vramwise("diagnose", str(log), "--config", str(path)).output
    assert "acme/secret' is unknown" in " ".join(without.split())
    assert "acme/secret' is unknown: not a folder" not in " ".join(with_count.split())
