"""What scripts of other people than the corpus's were read wrong: each case is a way of writing, with what is right."""

import json
import time

import pytest

from vramwise.api import check
from vramwise.documents.python.reached import reached
from vramwise.documents.python.scopes import index
from vramwise.documents.python.source import read_source
from vramwise.trainers.scripts.reading import NoTraining, Reading, read_script
from vramwise.trainers.scripts.variables import own_variables

HEAD = """\
import argparse, os, sys, torch
from dataclasses import dataclass, field
from peft import LoraConfig, PeftModel, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, HfArgumentParser, Trainer
from transformers import TrainingArguments
from trl import DPOConfig, DPOTrainer, ModelConfig, SFTConfig, SFTTrainer, TrlParser, get_peft_config
from trl import get_quantization_config
"""
FOUR_BITS = "AutoModelForCausalLM.from_pretrained('a/b', quantization_config=BitsAndBytesConfig(load_in_4bit=True))"
PLAIN = "AutoModelForCausalLM.from_pretrained('a/b')"


def read(body, **reading):
    return read_script("train.py", (HEAD + body).encode(), Reading(bf16=True, capability=(8, 9), **reading))


def open_keys(document):
    return {one.key for one in document.script.unsaid} - document.values.keys()


CASES = {
    "preparation turns checkpointing on, whatever the arguments say": (
        f"""\
model = prepare_model_for_kbit_training({FOUR_BITS})
t = Trainer(get_peft_model(model, LoraConfig()), TrainingArguments('o', gradient_checkpointing=False))
""",
        {"gradient_checkpointing": True},
    ),
    "preparation that is told not to": (
        f"""\
model = prepare_model_for_kbit_training({FOUR_BITS}, use_gradient_checkpointing=False)
t = Trainer(get_peft_model(model, LoraConfig()), TrainingArguments('o', gradient_checkpointing=False))
""",
        {"gradient_checkpointing": False},
    ),
    "preparation of a plain model casts it and turns nothing on": (
        f"""\
model = prepare_model_for_kbit_training({PLAIN})
t = Trainer(get_peft_model(model, LoraConfig()), TrainingArguments('o', gradient_checkpointing=False))
""",
        {"gradient_checkpointing": False, "dtype": "float32"},
    ),
    "preparation taken back by a method": (
        f"""\
model = prepare_model_for_kbit_training({FOUR_BITS})
model.gradient_checkpointing_disable()
t = Trainer(get_peft_model(model, LoraConfig()), TrainingArguments('o', gradient_checkpointing=False))
""",
        {"gradient_checkpointing": False},
    ),
    "trainer.train() is no call of a function named train": (
        """\
def train(batch_size: int = 1, rate: float = 1.0):
    trainer = Trainer('m', TrainingArguments('o', per_device_train_batch_size=batch_size, learning_rate=rate))
    trainer.train()
train(batch_size=6)
""",
        {"per_device_train_batch_size": 6, "learning_rate": 1.0},
    ),
    "quantisation given to a trainer that loads the model by its name": (
        "t = SFTTrainer('a/b', args=SFTConfig(), quantization_config=BitsAndBytesConfig(load_in_4bit=True))\n",
        {"load_in_4bit": True, "model_name_or_path": "a/b"},
    ),
    "rows cut by a slice": (
        """\
def process(row):
    MAX_LENGTH = 2500
    input_ids = row["a"] + row["b"]
    if len(input_ids) > MAX_LENGTH:
        input_ids = input_ids[:MAX_LENGTH]
    return {"input_ids": input_ids}
t = Trainer('m', TrainingArguments('o'))
""",
        {"max_length": 2500},
    ),
    "rows joined and cut into equal parts": (
        """\
block_size = 512
def group(rows):
    return {k: [t[i : i + block_size] for i in range(0, len(t), block_size)] for k, t in rows.items()}
t = Trainer('m', TrainingArguments('o'))
""",
        {"max_length": 512},
    ),
    "rows padded to a length": (
        """\
def process(row, length=768):
    return tokenizer.apply_chat_template(row, padding="max_length", max_length=length)
t = Trainer('m', TrainingArguments('o'))
""",
        {"max_length": 768},
    ),
    "the length of a collator that is a dataclass": (
        """\
@dataclass
class Collator:
    tokenizer: object
    length: int
    def __call__(self, rows):
        return self.tokenizer(rows, truncation=True, max_length=self.length)
t = Trainer('m', TrainingArguments('o'), data_collator=Collator(AutoTokenizer.from_pretrained('m'), 900))
""",
        {"max_length": 900},
    ),
    "answers to choose from are no rows": (
        """\
def group(rows):
    return {k: [v[i : i + 4] for i in range(0, len(v), 4)] for k, v in rows.items()}
t = Trainer('m', TrainingArguments('o'))
""",
        {"max_length": None},
    ),
    "arguments that a release may not take": (
        """\
import inspect
from typing import cast
wanted = dict(output_dir='o', per_device_train_batch_size=3)
taken = inspect.signature(TrainingArguments.__init__).parameters
args = TrainingArguments(**{key: value for key, value in wanted.items() if key in taken})
t = Trainer('m', cast(TrainingArguments, args))
""",
        {"per_device_train_batch_size": 3},
    ),
    "what is generated from is no row": (
        """\
def answer(text):
    ids = tokenizer(text, truncation=True, max_length=99)
    return model.generate(**ids)
def process(row):
    return tokenizer(row["text"], truncation=True, max_length=640)
t = Trainer('m', TrainingArguments('o'))
""",
        {"max_length": 640},
    ),
    "a branch that raises is not taken": (
        """\
def name_of(folder):
    if not os.path.isdir(folder):
        raise FileNotFoundError(folder)
    return "a/b"
if len(os.listdir(".")) > 3:
    batch = 4
else:
    sys.exit("too few files")
t = Trainer(AutoModelForCausalLM.from_pretrained(name_of("x")), TrainingArguments('o', per_device_train_batch_size=batch))
""",
        {"model_name_or_path": "a/b", "per_device_train_batch_size": 4},
    ),
    "a downloaded folder is the model that was downloaded": (
        """\
from modelscope import snapshot_download
folder = snapshot_download("Qwen/Qwen3-0.6B", cache_dir="./", revision="master")
t = Trainer(AutoModelForCausalLM.from_pretrained(folder), TrainingArguments('o'))
""",
        {"model_name_or_path": "Qwen/Qwen3-0.6B"},
    ),
    "targets from a text with commas": (
        """\
parser = argparse.ArgumentParser()
parser.add_argument("--targets", default="q_proj, v_proj")
args = parser.parse_args()
config = LoraConfig(target_modules=[one.strip() for one in args.targets.split(",")])
t = SFTTrainer('m', args=SFTConfig(), peft_config=config)
""",
        {"lora_target_modules": ["q_proj", "v_proj"]},
    ),
    "one process has no rank": (
        "t = Trainer('m', TrainingArguments('o', local_rank=int(os.environ.get('LOCAL_RANK', -1))))\n",
        {"local_rank": -1},
    ),
    "an adapter that was merged is none": (
        f"""\
model = PeftModel.from_pretrained({PLAIN}, "sft")
model = model.merge_and_unload()
t = Trainer(model, TrainingArguments('o'))
""",
        {"model_name_or_path": "a/b", "use_peft": None},
    ),
    "TRL's configs of the command line are None by default": (
        """\
parser = TrlParser((SFTConfig, ModelConfig))
args, model_args = parser.parse_args_and_config()
kwargs = dict(dtype="bfloat16")
quantization = get_quantization_config(model_args)
if quantization is not None:
    kwargs["quantization_config"] = quantization
t = SFTTrainer(AutoModelForCausalLM.from_pretrained("a/b", **kwargs), args=args, peft_config=get_peft_config(model_args))
""",
        {"model_name_or_path": "a/b", "load_in_4bit": None, "dtype": "bfloat16"},
    ),
}

TWICE = f"""\
model = {PLAIN}
t = Trainer(model, TrainingArguments('o'))
model = {PLAIN}
model.gradient_checkpointing_enable()
t = Trainer(model, TrainingArguments('o'))
"""


def test_a_method_belongs_to_the_training_of_its_model():
    assert "gradient_checkpointing" not in read(TWICE, call=1).values
    assert read(TWICE, call=2).values["gradient_checkpointing"] is True


def test_unsloths_adapter_makes_a_training_of_unsloth():
    body = """\
from unsloth import FastLanguageModel
from loading import load
model = FastLanguageModel.get_peft_model(load(), r=8, use_gradient_checkpointing="unsloth")
t = SFTTrainer(model=model, args=TrainingArguments('o'))
"""
    document = read(body)
    assert document.script.trainer == "unsloth"
    assert "gradient_checkpointing" not in document.values


@pytest.mark.parametrize("way", CASES)
def test_a_way_of_writing_is_read(way):
    body, expected = CASES[way]
    document = read(body)
    assert {key: document.values.get(key) for key in expected} == expected
    assert not open_keys(document) & expected.keys()


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (
            "from google.colab import userdata\nt = Trainer('m', TrainingArguments('o', seed=userdata.get('S')))\n",
            "seed",
        ),
        (
            "from config import BATCH\nt = Trainer('m', TrainingArguments('o', per_device_train_batch_size=BATCH))\n",
            "per_device_train_batch_size",
        ),
        (
            f"m = PeftModel.from_pretrained({PLAIN}, 'sft', is_trainable=True)\nt = Trainer(m, TrainingArguments('o'))\n",
            "adapter",
        ),
        (
            "@dataclass\nclass A(SFTConfig):\n    base: str = None\n(a,) = HfArgumentParser(A).parse_args_into_dataclasses()\n"
            "t = SFTTrainer(AutoModelForCausalLM.from_pretrained(a.base), args=a)\n",
            "model_name_or_path",
        ),
        (
            "def p(r):\n    x = tokenizer(r, truncation=True, max_length=5)\n    return tokenizer(r, truncation=True, max_length=9)\n"
            "t = Trainer('m', TrainingArguments('o'))\n",
            "max_length",
        ),
        (
            "config = {**other(), 'a': 1}\nt = Trainer('m', TrainingArguments('o', seed=config.get('seed', 3)))\n",
            "seed",
        ),
    ],
)
def test_what_cannot_be_known_is_reported(body, key):
    document = read(body)
    assert key in open_keys(document)
    assert all(one.line > 0 for one in document.script.unsaid)


def test_a_name_of_another_file_can_be_supplied_under_its_own_name():
    body = "from my.config import BATCH\nt = Trainer('m', TrainingArguments('o', per_device_train_batch_size=BATCH))\n"
    (missing,) = [one for one in read(body).script.unsaid if one.key == "per_device_train_batch_size"]
    assert (missing.name, missing.why) == ("BATCH", "BATCH comes from my.config, another file")
    assert read(body, said={"BATCH": 5}).values["per_device_train_batch_size"] == 5


TWO = """\
import hydra
def main():
    Trainer('m', TrainingArguments('o', per_device_train_batch_size=2)).train()
@hydra.main(config_name="c")
def other(cfg):
    Trainer('m', TrainingArguments('o', per_device_train_batch_size=cfg.batch)).train()
if __name__ == "__main__":
    main()
"""


def test_the_training_that_the_script_reaches_is_read():
    assert read(TWO).values["per_device_train_batch_size"] == 2
    assert read(TWO, call=2).script.chosen == 2


def test_what_nothing_calls_counts_where_nothing_is_called():
    tree = read_source(b"def a():\n    pass\ndef b():\n    a()\n").tree
    found = index(tree)
    assert {id(one) for one in found.module.functions.values()} <= reached(found)
    called = index(read_source(b"def a():\n    pass\ndef b():\n    a()\ndef c():\n    pass\nb()\n").tree)
    names = {name for name, one in called.module.functions.items() if id(one) in reached(called)}
    assert names == {"a", "b"}


def test_a_class_of_the_file_that_shares_a_trainers_name_is_none():
    with pytest.raises(NoTraining, match="name the file with the call that creates the trainer"):
        read("class SFTTrainer:\n    pass\nt = SFTTrainer(args=1)\n")


def test_a_variable_that_is_set_unless_it_is_set_counts():
    tree = read_source(
        b'import os\nos.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")\n'
    ).tree
    assert own_variables(tree) == {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def test_the_allocators_variable_counts_for_the_plain_trainer(tmp_path):
    path = tmp_path / "train.py"
    body = f"{HEAD}t = Trainer(AutoModelForCausalLM.from_pretrained('Qwen/Qwen3-0.6B'), TrainingArguments('o'))\n"
    path.write_text(body)
    assert "allocator-not-expandable" in {one.rule for one in check(path)[0].findings}
    path.write_text(body.replace(HEAD, HEAD + "os.environ['PYTORCH_ALLOC_CONF'] = 'expandable_segments:True'\n"))
    assert "allocator-not-expandable" not in {one.rule for one in check(path)[0].findings}


def test_nothing_is_found_about_a_value_that_is_not_known(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(f"{HEAD}from config import NAME, LENGTH\nt = SFTTrainer(NAME, args=SFTConfig(max_length=LENGTH))\n")
    found = {(one.rule, one.key) for one in check(path)[0].findings}
    assert not [one for one in found if one[1] in ("model_name_or_path", "max_length")]
    path.write_text(f"{HEAD}t = SFTTrainer('a/b', args=SFTConfig())\n")
    assert ("max-length-default", "max_length") in {(one.rule, one.key) for one in check(path)[0].findings}


@pytest.mark.parametrize("kind", ["SFT", "DPO"])
def test_a_head_with_a_bias_is_tiled_like_others(tmp_path, kind):
    """Phi-2 has one; TRL adds it tile by tile."""
    from vramwise.api import predict

    path = tmp_path / "train.py"
    body = f"t = {kind}Trainer('microsoft/phi-2', args={kind}Config(max_length=512), peft_config=LoraConfig())\n"
    path.write_text(HEAD + body)
    found = predict(path, gpu="h100", versions=("trl==1.16.0",))
    assert found.needs.breakdown_bytes.get("logits", 0) < 4 * 512 * 51200 * 4


def test_a_long_chain_of_functions_is_followed_in_no_time():
    body = "".join(f"def f{number}():\n    f{number + 1}()\n" for number in range(20_000))
    found = index(read_source(f"{body}f0()\n".encode()).tree)
    start = time.process_time()
    assert len(reached(found)) == 20_001
    assert time.process_time() - start < 5


COLLATED = """\
from unsloth import FastLanguageModel
from transformers import DataCollatorForSeq2Seq
from trl import SFTConfig, SFTTrainer
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/llama-3-8b-bnb-4bit", max_seq_length=2048)
model = FastLanguageModel.get_peft_model(model, r=16, use_gradient_checkpointing="unsloth")
config = SFTConfig(per_device_train_batch_size=8, optim="adamw_8bit", bf16=True)
trainer = SFTTrainer(model, args=config, data_collator=DataCollatorForSeq2Seq(tokenizer))
"""


def test_unsloths_compiled_layers_write_three_tensors_more(tmp_path):
    """Of a script with padded rows on an H200, torch 2.11: six tensors of the feed-forward layer's width at the peak."""
    from vramwise.api import predict

    path = tmp_path / "train.py"
    path.write_text(COLLATED)
    shared = ("unsloth==2026.10.9", "trl==1.15.0", "transformers==5.17.0", "xformers==0")
    peaks = [
        predict(path, gpu="h200", torch=torch, versions=shared).needs.highest_allocated_bytes
        for torch in ("2.10.0", "2.11.0")
    ]
    wide = 8 * 2048 * 14336 * 2
    assert 2 * wide < peaks[1] - peaks[0] < 3 * wide


@pytest.mark.parametrize(
    ("started", "reads"), [("!accelerate launch --num_processes 1 train.py", True), ("!ls", False)]
)
def test_a_cell_that_is_written_to_a_script_counts_where_it_is_started(started, reads):
    written = "%%writefile train.py\nfrom transformers import Trainer, TrainingArguments\n"
    sources = [written + "t = Trainer('m', TrainingArguments('o', per_device_train_batch_size=7))", started]
    cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": one} for one in sources]
    data = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()
    if not reads:
        with pytest.raises(NoTraining):
            read_script("a.ipynb", data, Reading())
    else:
        assert read_script("a.ipynb", data, Reading()).values["per_device_train_batch_size"] == 7


def test_a_value_of_too_many_steps_leaves_the_others_readable():
    doubled = "a0 = 1\n" + "".join(f"a{number + 1} = a{number} + a{number}\n" for number in range(60))
    document = read(
        f"{doubled}t = SFTTrainer('a/b', args=SFTConfig('o', seed=a60, per_device_train_batch_size=3, max_length=512))\n"
    )
    assert document.values["model_name_or_path"] == "a/b"
    assert (document.values["per_device_train_batch_size"], document.values["max_length"]) == (3, 512)
    assert "seed" in open_keys(document)
