"""The release that a file was written for: the newest that takes what it sets, where nothing names one."""

import pytest

from vramwise.api import check, predict
from vramwise.opening.options import Command, Options
from vramwise.opening.subject import open_subject

PLAIN = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B")
args = TrainingArguments("out", per_device_train_batch_size=1, {})
Trainer(model=model, args=args).train()
"""
SFT = """\
from trl import SFTConfig, SFTTrainer
SFTTrainer("Qwen/Qwen3-0.6B", args=SFTConfig("out", {})).train()
"""
LLAMA = "model_name_or_path: Qwen/Qwen3-0.6B\nstage: sft\ndo_train: true\nfinetuning_type: lora\ndataset: identity\n"


def subject(tmp_path, text, name="train.py", **words):
    path = tmp_path / name
    path.write_text(text)
    return open_subject(str(path), Options(**words))


def versions(found, *names):
    return [found.target.stack.releases[name].version for name in names]


def test_a_gone_argument_dates_a_script(tmp_path):
    found = subject(tmp_path, PLAIN.format('evaluation_strategy="steps", overwrite_output_dir=True'))
    assert versions(found, "transformers") == ["4.50.3"]
    release = found.target.stack.releases["transformers"]
    assert release.origin.kind == "assumed"
    assert release.origin.why == "written for transformers 4.50 or older: evaluation_strategy, overwrite_output_dir"
    assert found.run.evaluation.evaluates
    assert found.run.precision.weights_dtype == "fp32"  # as transformers 4 loads


def test_a_new_argument_dates_nothing(tmp_path):
    assert versions(subject(tmp_path, PLAIN.format("max_steps=3")), "transformers") == ["5.23.0"]
    mixed = subject(tmp_path, PLAIN.format("overwrite_output_dir=True, activation_checkpointing=True"))
    assert versions(mixed, "transformers") == ["5.23.0"]  # no release takes both
    assert versions(subject(tmp_path, PLAIN.format("no_such_thing=True")), "transformers") == ["5.23.0"]


@pytest.mark.parametrize(
    ("argument", "release", "gone"),
    [("max_seq_length=512", "0.19.1", "0.20.0"), ("use_liger=True", "0.17.0", "0.18.0")],
)
def test_trl_is_dated_and_says_from_which_release_on_it_stops(tmp_path, argument, release, gone):
    path = tmp_path / "train.py"
    path.write_text(SFT.format(argument))
    [report] = check(str(path), gpu="rtx-4090")
    assert report.run.target.stack.releases["trl"].version == release
    [found] = [one for one in report.findings if one.rule == "unknown-argument"]
    assert found.severity.value == "warning"
    assert f"stops from trl {gone} on" in found.message
    assert not predict(str(path), gpu="rtx-4090").prediction.stops


def test_an_argument_of_the_trainer_itself_dates_a_script(tmp_path):
    text = SFT.format("").replace('"out", ', '"out"').replace("))", '), max_seq_length=512, tokenizer="t")')
    found = subject(tmp_path, text)
    assert versions(found, "trl") == ["0.12.2"]
    assert found.run.shapes.sequence_len == 512


def test_a_stated_release_is_not_dated_and_the_argument_stops_it(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SFT.format("max_seq_length=512"))
    [report] = check(str(path), gpu="rtx-4090", versions=("trl==1.16.0",))
    [found] = [one for one in report.findings if one.rule == "unknown-argument"]
    assert found.severity.value == "error"
    [pinned] = check(str(path), gpu="rtx-4090", versions=("trl==0.19.1",))
    assert "unknown-argument" not in {one.rule for one in pinned.findings}


def test_a_value_that_another_release_takes_is_not_unusable(tmp_path):
    text = f"{LLAMA}quantization_bit: 4\nquantization_method: bitsandbytes\n"
    assert versions(subject(tmp_path, text, "run.yml"), "llamafactory") == ["0.9.2"]
    [said] = check(str(tmp_path / "run.yml"), versions=("llamafactory==0.9.5",))
    assert said.error is None
    [found] = [one for one in said.findings if one.rule == "argument-misread"]
    assert found.severity.value == "error"
    assert "llamafactory 0.9.2 takes it" in found.message


def test_an_old_name_is_read_as_todays_in_a_file(tmp_path):
    text = f"{LLAMA}val_size: 0.1\nevaluation_strategy: steps\neval_steps: 10\n"
    found = subject(tmp_path, text, "run.yml")
    assert found.run.evaluation.evaluates
    assert found.run.origins["evaluates"].place.line == 7


def test_a_what_if_upgrade_keeps_what_else_the_file_names(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("# /// script\n# dependencies = ['trl==0.19.1']\n# ///\n" + SFT.format("max_seq_length=512"))
    before = predict(str(path), gpu="rtx-4090").prediction
    after = predict(str(path), gpu="rtx-4090", changes=("trl==1.16.0",)).prediction
    assert [one.run.target.stack.releases["trl"].version for one in (before, after)] == ["0.19.1", "1.16.0"]
    assert after.stops
    assert not before.stops


def test_a_launch_line_is_typed_by_the_release_that_takes_it():
    line = "llamafactory-cli train --stage sft --do_train True --model_name_or_path Qwen/Qwen3-0.6B --dataset identity "
    found = open_subject(Command(f"{line} --finetuning_type lora --template qwen --flash_attn False --output_dir out"))
    assert found.document.values["flash_attn"] is False
    assert versions(found, "llamafactory") == ["0.6.3"]
