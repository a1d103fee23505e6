"""What a close reading of scripts found wrong: each case is a way of writing, with what the run is really given."""

import json

import pytest

from vramwise.api import predict
from vramwise.render.verdict_text import reasons
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
    assert any("has no effect with full_finetuning" in note for note in map(str, found.script.assumed))
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
    assert "model_name_or_path: --base has its default (line 5)" in map(str, read(body).script.assumed)
    given = read(body, args="--base a/b")
    assert given.values["model_name_or_path"] == "a/b"
    assert not any("has its default" in note for note in map(str, given.script.assumed))
    said = read(body, said={"base": "a/b"})
    assert not any("has its default" in note for note in map(str, said.script.assumed))


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


HEAD = """\
import argparse, torch
from dataclasses import dataclass, field
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, GPTQConfig, HfArgumentParser, Trainer
from transformers import TrainingArguments
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer
"""
WAYS = {
    "a class of the file extends another": (
        """\
class Base:
    name = 'x/big'
    sizes = {'micro': 4, 'whole': 16}
class Small(Base):
    name = 'x/small'
    sizes = {**Base.sizes, 'micro': 2}
c = Small()
t = SFTTrainer(c.name, args=SFTConfig(per_device_train_batch_size=c.sizes['micro'],
    gradient_accumulation_steps=c.sizes['whole'] // c.sizes['micro']))
""",
        {"model_name_or_path": "x/small", "per_device_train_batch_size": 2, "gradient_accumulation_steps": 8},
    ),
    "a parsed dataclass extends another": (
        """\
@dataclass
class Common:
    base: str = 'x/y'
@dataclass
class Mine(Common):
    rank: int = 4
mine, args = HfArgumentParser((Mine, TrainingArguments)).parse_args_into_dataclasses()
m = get_peft_model(AutoModelForCausalLM.from_pretrained(mine.base), LoraConfig(r=mine.rank))
t = Trainer(m, args)
""",
        {"model_name_or_path": "x/y", "lora_r": 4},
    ),
    "methods of a runner, class attributes, defaults of the file's own arguments": (
        """\
@dataclass
class Mine(TrainingArguments):
    per_device_train_batch_size: int = 6
    optim: str = 'adafactor'
class Runner:
    NAME = 'x/y'
    def __init__(self, rate=1e-5):
        self.rate = rate
        self.args = self._args(accumulate=2)
    def _args(self, accumulate):
        return Mine(output_dir='o', learning_rate=self.rate, gradient_accumulation_steps=accumulate, optim='adamw_torch')
    def _load(self):
        return AutoModelForCausalLM.from_pretrained(self.NAME, torch_dtype=torch.float32)
    def run(self):
        Trainer(model=self._load(), args=self.args).train()
Runner(rate=3e-5).run()
""",
        {
            "model_name_or_path": "x/y",
            "dtype": "float32",
            "per_device_train_batch_size": 6,
            "gradient_accumulation_steps": 2,
            "learning_rate": 3e-5,
            "optim": "adamw_torch",
        },
    ),
    "a method behind a call with a long text": (
        """\
m = AutoModelForCausalLM.from_pretrained('an-organisation/with-a-long-name-of-its-model', torch_dtype=torch.float16).to('cuda')
t = SFTTrainer(m, args=SFTConfig())
""",
        {"model_name_or_path": "an-organisation/with-a-long-name-of-its-model", "dtype": "float16"},
    ),
    "letters of a text": (
        "t = SFTTrainer('x/y', args=SFTConfig(), peft_config=LoraConfig(target_modules=[f'{a}_proj' for a in 'qv']))\n",
        {"lora_target_modules": ["q_proj", "v_proj"]},
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_way_of_writing_is_followed(way):
    body, expected = WAYS[way]
    values = read(HEAD + body).values
    assert {key: values.get(key) for key in expected} == expected


def unsaid(found, key):
    return next((one for one in found.script.unsaid if one.key == key), None)


@pytest.mark.parametrize(
    ("call", "key"),
    [
        ("SFTTrainer('x/y', args=make_arguments(batch=4))", "training arguments"),
        ("SFTTrainer('x/y', args=SFTConfig(), peft_config=make_adapter())", "adapter"),
        ("SFTTrainer('x/y', args=SFTConfig(), peft_config=PromptTuningConfig(num_virtual_tokens=8))", "adapter"),
        (
            "SFTTrainer(AutoModelForCausalLM.from_pretrained('x/y', quantization_config=GPTQConfig(bits=4)),"
            " args=SFTConfig())",
            "quantization",
        ),
    ],
)
def test_what_is_made_elsewhere_is_reported_not_guessed(call, key):
    found = read(HEAD + "from mine import make_adapter, make_arguments\nt = " + call + "\n")
    assert unsaid(found, key) is not None
    assert "lora_r" not in found.values


def test_attributes_that_change_after_a_training_belong_to_the_next():
    cells = (
        HEAD + "args = SFTConfig(per_device_train_batch_size=8)",
        "SFTTrainer('x/y', args=args).train()",
        "args.per_device_train_batch_size = 2\nargs.gradient_checkpointing = True",
        "SFTTrainer('x/y', args=args).train()",
    )
    first, second = (read(notebook(*cells), "train.ipynb", call=number).values for number in (1, 2))
    assert (first["per_device_train_batch_size"], first.get("gradient_checkpointing")) == (8, None)
    assert (second["per_device_train_batch_size"], second["gradient_checkpointing"]) == (2, True)


BRANCH = """\
p = argparse.ArgumentParser()
p.add_argument('--lora', action='store_true')
a = p.parse_args()
m = AutoModelForCausalLM.from_pretrained('x/y')
if a.lora:
    m = get_peft_model(m, LoraConfig(r=4))
t = SFTTrainer(m, args=SFTConfig())
"""


def test_a_branch_that_a_default_decides_says_so():
    plain, adapted = read(HEAD + BRANCH), read(HEAD + BRANCH, args="--lora")
    assert "use_peft" not in plain.values
    assert "model: --lora has its default, False (line 8)" in map(str, plain.script.assumed)
    assert adapted.values["lora_r"] == 4
    assert "use_peft: --lora = True (--args)" in map(str, adapted.script.assumed)


def test_a_try_that_may_fail_says_so():
    body = "try:\n    import fast\n    size = 4\nexcept ImportError:\n    size = 2\n"
    found = read(HEAD + body + "t = SFTTrainer('x/y', args=SFTConfig(per_device_train_batch_size=size))\n")
    assert found.values["per_device_train_batch_size"] == 4
    assert any("try in line 7" in note for note in map(str, found.script.assumed))


def test_a_loop_over_runs_gives_each_name_its_own_values():
    body = "for name, size in [('x/a', 8), ('x/b', 4)]:\n    SFTTrainer(name, args=SFTConfig(\n"
    body += "        per_device_train_batch_size=size, gradient_accumulation_steps=32 // size)).train()\n"
    found = read(HEAD + body)
    assert unsaid(found, "per_device_train_batch_size").either == (8, 4)
    assert unsaid(found, "gradient_accumulation_steps").either == ()


def test_the_verdict_names_what_is_open_as_a_whole():
    body = "from mine import make_adapter, make_arguments\nfrom trl import SFTTrainer\n"
    body += "SFTTrainer('Qwen/Qwen3-0.6B', args=make_arguments(), peft_config=make_adapter())\n"
    shown = "\n".join(reasons(predict(body, gpu="rtx-4090").prediction))
    start = "Unknown: training arguments (line 3: it comes from mine.make_arguments(), which is not run)"
    assert f"{start}; their defaults are assumed" in shown
    assert "Unknown: adapter (line 3: it comes from mine.make_adapter(), which is not run)" in shown
