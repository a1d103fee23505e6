"""What a close reading of scripts found wrong: each case is a way of writing, with what the run is really given."""

import json

import pytest

from vramwise.trainers.scripts.reading import Reading, read_script


def read(body, path="train.py", **reading):
    return read_script(path, body.encode(), Reading(bf16=True, capability=(8, 9), **reading))


def notebook(*cells):
    made = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": one} for one in cells]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


UNSLOTH = """\
from unsloth import FastModel
from trl import SFTTrainer, SFTConfig
model, tokenizer = FastModel.from_pretrained("x/y", max_seq_length=1024, load_in_4bit=False, full_finetuning={full})
model = FastModel.get_peft_model(model, r=64, lora_alpha=32, use_gradient_checkpointing=True)
trainer = SFTTrainer(model, args=SFTConfig(per_device_train_batch_size=2))
"""


def test_unsloth_adds_no_adapter_when_every_weight_is_trained():
    found = read(UNSLOTH.format(full=True))
    assert found.values["use_peft"] is False
    assert not found.values.keys() & {"lora_r", "lora_alpha", "use_gradient_checkpointing"}
    assert any("has no effect with full_finetuning" in note for note in found.script.assumed)
    adapted = read(UNSLOTH.format(full=False)).values
    assert (adapted["use_peft"], adapted["lora_r"]) == (True, 64)


def test_defaults_of_a_parsed_dataclass_are_said_as_such():
    body = """\
from dataclasses import dataclass
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
@dataclass
class Options:
    base: str = "x/y"
parser = HfArgumentParser((Options, TrainingArguments))
options, args = parser.parse_args_into_dataclasses()
trainer = Trainer(AutoModelForCausalLM.from_pretrained(options.base), args)
"""
    assert "model_name_or_path: --base has its default (line 5)" in read(body).script.assumed
    given = read(body, args="--base a/b")
    assert given.values["model_name_or_path"] == "a/b"
    assert not any("has its default" in note for note in given.script.assumed)
    said = read(body, said={"base": "a/b"})
    assert not any("has its default" in note for note in said.script.assumed)


@pytest.mark.parametrize(
    ("lines", "versions"),
    [
        ("!pip install trl==0.9.6\n!pip install 'trl>=0.10,<0.12'", {}),
        ("!pip install trl==0.11.1\n!pip install 'trl>=0.10,<0.12'", {"trl": "0.11.1"}),
        ("!pip install 'trl>=0.10'\n!pip install trl==0.9.6", {"trl": "0.9.6"}),
        ("!pip install trl==0.9.6 peft==0.11.1\n%pip install -q -U trl", {"peft": "0.11.1"}),
        ("!pip install trl==0.9.6\n!pip install git+https://github.com/huggingface/trl.git", {}),
        ("!pip install trl==0.9.6\n# !pip install trl==0.12.0", {"trl": "0.9.6"}),
        ("!pip install trl # trl==0.12.0 also works", {}),
    ],
)
def test_a_pin_counts_until_another_line_replaces_it(lines, versions):
    cell = "from trl import SFTTrainer, SFTConfig\nt = SFTTrainer('x/y', args=SFTConfig())"
    assert read(notebook(lines, cell), "train.ipynb").script.versions == versions
