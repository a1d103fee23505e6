"""A file of LLaMA-Factory through every command: found by itself, spoken to in its own keys."""

import json

import pytest
import yaml

from vramwise.documents.document import parse_document
from vramwise.opening.options import Options
from vramwise.opening.subject import open_subject, subject_of
from vramwise.trainers.registry import trainer_named
from vramwise.verbs.check import check_subject

TEXT = """\
model_name_or_path: Qwen/Qwen2.5-0.5B-Instruct
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 8
dataset: identity
template: qwen
cutoff_len: 1024
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
bf16: true
val_size: 0.1
eval_strategy: steps
eval_steps: 2
"""
# Without what takes long to simulate: evaluations, and micro-steps that differ.
PLAIN = "".join(line for line in TEXT.splitlines(True) if not line.startswith(("val_size", "eval_", "gradient_acc")))
OOM = (
    "***** Running training *****\n  0%|          | 0/100 [00:00<?, ?it/s]\nTraceback (most recent call last):\n"
    '  File "/x/llamafactory/train/sft/workflow.py", line 120, in run_sft\n    train_result = trainer.train()\n'
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 0 has a total capacity of 7.60 GiB of "
    "which 0.90 GiB is free. Including non-PyTorch memory, this process has 6.69 GiB memory in use. Of the allocated "
    "memory 5.90 GiB is allocated by PyTorch, and 313.00 MiB is reserved by PyTorch but unallocated.\n"
)


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "sft.yaml"
    path.write_text(TEXT)
    return path


def test_check_speaks_of_its_keys(vramwise, config):
    done = vramwise("check", config, "--format", "json")
    [found] = json.loads(done.stdout)["files"]
    assert found["trainer"] == "llamafactory"
    messages = " ".join(one["message"] for one in found["findings"])
    assert "per_device_eval_batch_size 8" in messages
    assert "axolotl" not in done.stdout.lower()
    assert "micro_batch_size" not in messages


def test_fix_evaluates_at_the_training_batch(vramwise, config):
    vramwise("fix", config)
    assert yaml.safe_load(config.read_text())["per_device_eval_batch_size"] == 2


def test_predict_and_what_if_take_its_keys(vramwise, config):
    config.write_text(PLAIN)
    words = ("predict", config, "--format", "json")
    done = vramwise(*words, "--what-if", "enable_liger_kernel=true")
    assert done.exit_code == 0
    assert "llamafactory 0.9.5" in done.stdout
    assert "enable_liger_kernel" in done.stdout
    done = vramwise(*words, "--what-if", "cutof_len=512")
    assert done.exit_code == 2
    assert "did you mean cutoff_len" in str(done.exception)


def test_diagnose_offers_edits_of_the_file(vramwise, config, tmp_path):
    log = tmp_path / "train.log"
    log.write_text(OOM)
    config.write_text(PLAIN)
    done = vramwise("diagnose", log, "--config", config)
    assert done.exit_code == 1
    assert "+per_device_train_batch_size: 1" in done.stdout
    assert "+gradient_accumulation_steps: 2" in done.stdout


def test_explain_has_its_rules(vramwise):
    done = vramwise("explain", "fp32-masters")
    assert done.exit_code == 0
    assert "pure_bf16" in done.stdout


@pytest.mark.parametrize("ending", ["json", "yaml"])
def test_json_is_an_error_where_llamafactory_cannot_read_it(vramwise, tmp_path, ending):
    path = tmp_path / f"sft.{ending}"
    path.write_text(json.dumps(yaml.safe_load(TEXT)))
    found = {
        one["rule"] for one in json.loads(vramwise("check", path, "--format", "json").stdout)["files"][0]["findings"]
    }
    assert ("json-not-read" in found) is (ending == "json")


def test_unknown_keys_stop_llamafactory(vramwise, tmp_path):
    path = tmp_path / "sft.yaml"
    path.write_text(TEXT + "gradient_acumulation_steps: 8\nbatch_size: 16\n")
    done = vramwise("check", path, "--format", "json")
    found = json.loads(done.stdout)["files"][0]["findings"]
    [one, other] = [finding["message"] for finding in found if finding["rule"] == "unknown-argument"]
    assert "did you mean gradient_accumulation_steps" in one
    assert "LLaMA-Factory stops" in other
    assert "batch-size-set" not in {finding["rule"] for finding in found}


ODD = (None, "text", [], {}, -1, True, 0.5, ["a", {"b": 1}], 10**30, float("nan"))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("value", ODD, ids=repr)
def test_no_value_breaks_it(value):
    """Every seventh key, each time others, with a value that nobody expects there."""
    options = Options(gpu="rtx-4090")
    target = open_subject(yaml.safe_load(TEXT), options).target
    keys = sorted(trainer_named("llamafactory").vocabulary(None, target.stack).keys())
    for key in keys[ODD.index(value) % 7 :: 7]:
        text = yaml.safe_dump(yaml.safe_load(TEXT) | {key: value})
        report = check_subject(subject_of(parse_document("x.yml", text.encode()), options))
        assert "this is a bug" not in str(report.error)
