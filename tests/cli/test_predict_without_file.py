"""`predict` without a file: a few options make a config, and the answer is that config's."""

import json
import shlex

import pytest
import yaml

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


@pytest.mark.parametrize(
    ("trainer", "keys"),
    [
        ("trl", {"use_peft": True, "load_in_4bit": True, "lora_r": 8, "max_length": 1024}),
        ("llamafactory", {"finetuning_type": "lora", "quantization_bit": 4, "lora_rank": 8, "cutoff_len": 1024}),
    ],
)
def test_another_trainer_answers_as_its_own_file_would(vramwise, tmp_path, trainer, keys):
    result = vramwise("predict", "--model", MODEL, *WORDS, "--trainer", trainer)
    shown = result.stderr.partition("As a config:\n")[2]
    values = yaml.safe_load(shown)
    assert values.items() >= (keys | {"per_device_train_batch_size": 2}).items()
    (tmp_path / "config.yml").write_text(yaml.safe_dump(values))
    without = predicted(vramwise, "--model", MODEL, *WORDS, "--trainer", trainer)
    assert without == predicted(vramwise, tmp_path / "config.yml")


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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "expected a config or a model"),
        (("--adapter", "lora"), "expected a config or a model"),
        (("examples/qlora.yml", "--rank", "4"), "--rank works only without CONFIG"),
        (("examples/qlora.yml", "--no-packing"), "--packing works only without CONFIG"),
        (("--model", MODEL, "--rank", "4"), "rank needs an adapter"),
        (("--model", MODEL, "--trainer", "nobody"), "unknown trainer 'nobody'"),
        (("--model", MODEL, "--trainer", "hf-trainer"), "only axolotl, llamafactory, trl are supported, not"),
        (("--model", MODEL, "--trainer", "trl:dpo"), "for dpo, write a config"),
        (("--model", MODEL, "--trainer", "llamafactory", "--attention", "x"), "LLaMA-Factory has no attention 'x'"),
    ],
)
def test_a_mistake_is_one_sentence(vramwise, words, said):
    result = vramwise("predict", *words)
    assert result.exit_code == 2
    assert said in str(result.exception)
