"""`predict` without a file: a few options make a config, and the answer is that config's."""

import json
import shlex

import pytest
import yaml

from vramwise.trainers.registry import TRAINERS
from vramwise.trainers.wishes import Wishes

MODEL = "HuggingFaceTB/SmolLM2-135M"
WORDS = ("--adapter", "qlora", "--rank", "8", "--sequence-len", "1024", "--micro-batch", "2", "--checkpointing")
TEXT = f"""\
base_model: {MODEL}
adapter: qlora
load_in_4bit: true
lora_r: 8
lora_alpha: 16
lora_target_linear: true
sequence_len: 1024
micro_batch_size: 2
gradient_checkpointing: true
"""


def predicted(vramwise, *words):
    return json.loads(vramwise("predict", *words, "--gpu", "rtx-4090", "--format", "json").stdout)


def test_the_answer_is_that_of_the_file_it_stands_for(vramwise, tmp_path):
    (tmp_path / "config.yml").write_text(TEXT)
    without = predicted(vramwise, "--model", MODEL, *WORDS)
    assert without == predicted(vramwise, tmp_path / "config.yml")
    assert without["fits"] is True


def test_the_config_is_shown_to_start_from(vramwise):
    result = vramwise("predict", "--model", MODEL, *WORDS)
    assert result.exit_code == 0
    shown = result.stderr.partition("As a config:\n")[2]
    assert yaml.safe_load(shown) == yaml.safe_load(TEXT)


def test_what_if_and_the_command_of_a_remedy_hold_for_it(vramwise):
    wide = ("--model", MODEL, "--sequence-len", "2048", "--micro-batch", "4")
    result = vramwise("predict", *wide, "--gpu", "12GB")
    assert result.exit_code == 1
    again = next(line for line in result.stdout.splitlines() if line.strip().startswith("vramwise predict"))
    words = shlex.split(again)[1:]
    assert words[1:5] == ["--sequence-len", "2048", "--micro-batch", "4"]
    assert "--what-if" in words
    assert vramwise(*words, "--format", "json").exit_code == 1  # as it is; the change is beside it


def test_every_wish_has_its_key():
    full = Wishes(
        model="m",
        adapter="lora",
        rank=4,
        sequence_len=1,
        micro_batch=2,
        accumulation=3,
        optimizer="sgd",
        checkpointing=False,
        attention="sdpa",
        packing=True,
        fused_loss=True,
        eval_batch=5,
    )
    values = TRAINERS[0].compose(full)
    for key, value in {
        "lora_r": 4,
        "micro_batch_size": 2,
        "gradient_accumulation_steps": 3,
        "optimizer": "sgd",
        "gradient_checkpointing": False,
        "attn_implementation": "sdpa",
        "sample_packing": True,
        "liger_fused_linear_cross_entropy": True,
        "eval_batch_size": 5,
    }.items():
        assert values[key] == value
    assert TRAINERS[0].compose(Wishes(model="m")) == {"base_model": "m"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name a config; or without one a model"),
        (("--adapter", "lora"), "name a config; or without one a model"),
        (("examples/qlora.yml", "--rank", "4"), "--rank says a run without a file"),
        (("examples/qlora.yml", "--no-packing"), "--packing says a run without a file"),
        (("--model", MODEL, "--rank", "4"), "--rank is an adapter's"),
        (("--model", MODEL, "--trainer", "nobody"), "there is no trainer 'nobody'"),
    ],
)
def test_a_mistake_is_one_sentence(vramwise, words, said):
    result = vramwise("predict", *words)
    assert result.exit_code == 2
    assert said in str(result.exception)
