"""Objects that scripts make and change: instances, copies, attributes under conditions, and models changed in place."""

import pytest

from vramwise.trainers.scripts.reading import Reading, read_script

HEAD = """\
import argparse, copy, dataclasses, os, torch
from dataclasses import dataclass
from peft import LoraConfig
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments
from trl import DPOTrainer, SFTConfig, SFTTrainer
p = argparse.ArgumentParser()
p.add_argument('--size', type=int, default=8)
p.add_argument('--dpo', action='store_true')
m = AutoModelForCausalLM.from_pretrained('x/y')
"""


def read(body, **reading):
    return read_script("train.py", (HEAD + body).encode(), Reading(bf16=True, capability=(8, 9), **reading))


SIZES = {
    "dataclasses.replace": "a = dataclasses.replace(SFTConfig(per_device_train_batch_size=8), per_device_train_batch_size=2)\n",
    "copy.deepcopy": "a = copy.deepcopy(SFTConfig(per_device_train_batch_size=8))\na.per_device_train_batch_size = 2\n",
    "setattr": "a = SFTConfig(per_device_train_batch_size=8)\nsetattr(a, 'per_device_train_batch_size', 2)\n",
    "a list for parse_args": "f = p.parse_args(['--size', '2'])\na = SFTConfig(per_device_train_batch_size=f.size)\n",
    "a text for parse_args": "f = p.parse_args('--size 2'.split())\na = SFTConfig(per_device_train_batch_size=f.size)\n",
    "positions of a dataclass": (
        "@dataclass\nclass C:\n    size: int = 8\n    rank: int = 4\na = SFTConfig(per_device_train_batch_size=C(2).size)\n"
    ),
    "__post_init__": (
        "@dataclass\nclass C:\n    whole: int = 32\n    size: int = 0\n    def __post_init__(self):\n"
        "        self.size = self.whole // 4\na = SFTConfig(per_device_train_batch_size=C(whole=8).size)\n"
    ),
    "a method of an instance": (
        "class C:\n    def __init__(self, size):\n        self.size = size\n    def arguments(self):\n"
        "        return SFTConfig(per_device_train_batch_size=self.size)\nc = C(2)\na = c.arguments()\n"
    ),
    "a class method": (
        "class C:\n    @classmethod\n    def arguments(cls, size=8):\n"
        "        return SFTConfig(per_device_train_batch_size=size)\na = C.arguments(2)\n"
    ),
}


@pytest.mark.parametrize("way", SIZES)
def test_an_object_is_followed(way):
    assert read(SIZES[way] + "t = SFTTrainer(m, args=a)\n").values["per_device_train_batch_size"] == 2


def test_an_attribute_under_an_open_condition_is_open():
    body = "kw = {'torch_dtype': torch.bfloat16}\nif os.environ.get('Q'):\n"
    body += "    kw['quantization_config'] = BitsAndBytesConfig(load_in_4bit=True)\n"
    body += "m = AutoModelForCausalLM.from_pretrained('x/y', **kw)\nt = SFTTrainer(m, args=SFTConfig())\n"
    found = read(body)
    assert "load_in_4bit" not in found.values
    assert [(one.key, one.name) for one in found.script.unsaid] == [("quantization", "Q")]
    assert read(body, said={"Q": "1"}).values["load_in_4bit"] is True


@pytest.mark.parametrize("change", ["m.half()", "m.to(torch.float16)", "m.to(dtype=torch.float16)"])
def test_a_model_changes_its_type_in_place_before_the_training(change):
    train = "t = Trainer(m, TrainingArguments('o'))\n"
    assert read(f"{change}\n{train}").values["dtype"] == "float16"
    assert "dtype" not in read(f"{train}{change}\n").values
    assert "dtype" not in read(f"batch = other()\n{change.replace('m.', 'batch.', 1)}\n{train}").values


def test_checkpointing_that_is_turned_off_again_is_off():
    on, off = "m.gradient_checkpointing_enable({'use_reentrant': False})\n", "m.gradient_checkpointing_disable()\n"
    train = "t = Trainer(m, TrainingArguments('o'))\n"
    assert read(on + train).values["gradient_checkpointing"] is True
    assert read(on + train).values["gradient_checkpointing_kwargs"] == {"use_reentrant": False}
    assert "gradient_checkpointing" not in read(on + off + train).values
    assert read(off + on + train).values["gradient_checkpointing"] is True


def test_frozen_weights_are_a_fact_where_no_adapter_is():
    freeze = "for one in m.parameters():\n    one.requires_grad = False\n"
    full, adapted = (
        read(f"{freeze}t = SFTTrainer(m, args=SFTConfig(){more})\n") for more in ("", ", peft_config=LoraConfig()")
    )
    assert full.script.facts["weights frozen"] == 11
    assert "weights frozen" not in adapted.script.facts


def test_a_name_for_one_of_several_trainers_is_followed():
    body = "a = p.parse_args()\nkind = DPOTrainer if a.dpo else SFTTrainer\nt = kind(model=m, args=SFTConfig())\n"
    assert read(body).script.kind == "sft"
    assert read(body, args="--dpo").script.kind == "dpo"
