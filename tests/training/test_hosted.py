"""TRL and LLaMA-Factory, started by their own commands: what they are handed, and how a run goes on. No torch."""

import sys
from pathlib import Path

import pytest
import stand_ins
import yaml
from plans import make_plan

from hosted_files import FILES, LLAMAFACTORY, TRL
from tiny_runs import make_folder, prepared
from vramwise.errors import VramwiseError
from vramwise.opening.subject import Options
from vramwise.training.guard.memory_log import read_log
from vramwise.training.hosted.entries import SCRIPT
from vramwise.training.parent import extras
from vramwise.training.parent.hosted_engines import llamafactory_attempt, trl_attempt
from vramwise.training.parent.prepare import TrainOptions, prepare

ATTEMPTS = {"trl": trl_attempt, "llamafactory": llamafactory_attempt}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    stand_ins.install(tmp_path, monkeypatch)
    return make_folder(tmp_path)


def write(folder, trainer, **changes):
    path = folder / f"{trainer}-sft.yaml"
    path.write_text(yaml.safe_dump({**FILES[trainer], "output_dir": str(folder / "out"), **changes}))
    return path


def plan_for(folder, trainer, text=None, **changes):
    text = yaml.safe_dump(FILES[trainer]) if text is None else text
    return make_plan(folder, engine=trainer, kind="sft", config_text=text, **changes)


def handed(folder, trainer, text=None, **changes):
    command = ATTEMPTS[trainer](plan_for(folder, trainer, text, **changes), "plan.json", {})
    return read(command)


def read(command):
    return yaml.safe_load(Path(command[-1]).read_text())


@pytest.mark.parametrize("trainer", FILES)
def test_a_run_that_runs_out_of_memory_goes_on_from_its_checkpoint_with_smaller_batches(folder, vramwise, trainer):
    config = write(folder, trainer)
    text = config.read_text()
    done = vramwise("train", config, "--torch", "2.13")  # it is installed: nobody has to ask for it
    assert done.exit_code == 0, done.output
    checkpoint = folder / "out" / "checkpoint-2"
    assert (folder / "out" / "seen.txt").read_text().splitlines() == [
        "4 1 None",
        f"2 2 {checkpoint}",
        f"1 4 {checkpoint}",
    ]
    assert "the file is for it, and it is installed" in done.output
    assert "2.0 GiB requested" in done.output
    assert config.read_text() == text
    log = read_log(folder / "out" / "memory.jsonl")
    assert [record["micro_batch_size"] for record in log.of_kind("start")] == [4, 2, 1]
    assert [record["attempt"] for record in log.of_kind("end")] == [3]
    assert vramwise("report", folder / "out").exit_code == 0


def test_out_of_memory_in_an_evaluation_makes_its_batch_smaller(folder, vramwise):
    config = write(folder, "trl", per_device_train_batch_size=1, eval_strategy="steps", eval_steps=1)
    done = vramwise("train", config)
    assert done.exit_code == 0, done.output
    assert "out of memory in eval" in done.output
    starts = read_log(folder / "out" / "memory.jsonl").of_kind("start")
    assert [record["eval_batch_size"] for record in starts] == [8, 4, 2]
    assert {record["micro_batch_size"] for record in starts} == {1}


@pytest.mark.parametrize("trainer", FILES)
def test_after_a_signal_nothing_follows_the_training(folder, vramwise, trainer):
    """Neither a last evaluation nor a model saved as if it were trained."""
    done = vramwise("train", write(folder, trainer, run_name="stopped"))
    assert done.exit_code == 143
    assert not (folder / "out" / "finished").exists()
    assert [record["attempt"] for record in read_log(folder / "out" / "memory.jsonl").of_kind("end")] == [1]
    assert vramwise("train", write(folder, trainer, per_device_train_batch_size=1), "--fresh").exit_code == 0
    assert (folder / "out" / "finished").exists()


def test_beside_a_checkpoint_beginning_anew_must_be_asked_for(folder, vramwise):
    config = write(folder, "llamafactory", per_device_train_batch_size=1)
    assert vramwise("train", config).exit_code == 0
    again = vramwise("train", config)
    assert again.exit_code == 2
    assert "--fresh" in str(again.exception)
    resumed = vramwise("train", config, "--resume")
    assert resumed.exit_code == 0
    assert (folder / "out" / "seen.txt").read_text().splitlines()[-1].endswith("checkpoint-2")


def test_trls_own_command_computes_what_its_launcher_gets(folder, vramwise, capfd):
    assert vramwise("train", write(folder, "trl", per_device_train_batch_size=1), "--torch", "2.13").exit_code == 0
    assert "accelerate launch --num_processes 1 expandable_segments:True" in capfd.readouterr().out


def test_an_error_that_is_none_of_memory_ends_the_run(folder, vramwise):
    (folder / "site" / "trl" / "scripts" / "sft.py").write_text("raise SystemExit(3)")
    done = vramwise("train", write(folder, "trl"))
    assert done.exit_code == 3
    assert "trying again" not in done.output


@pytest.mark.parametrize(("trainer", "last"), [("trl", ["trl", "plan.json", "sft"]), ("llamafactory", None)])
def test_the_command(folder, trainer, last):
    command = ATTEMPTS[trainer](plan_for(folder, trainer), "plan.json", {})
    assert command[:2] == [sys.executable, SCRIPT]
    assert command[2:-1] == (last or ["llamafactory", "plan.json"])


def test_several_gpus(folder):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--max-restarts", "0", "--nproc-per-node"]
    for gpus, text in ((4, None), (1, yaml.safe_dump({**LLAMAFACTORY, "deepspeed": "zero2.json"}))):
        command = llamafactory_attempt(plan_for(folder, "llamafactory", text, gpus=gpus), "plan.json", {})
        assert command[:-4] == [*torchrun, str(gpus), "--standalone"]
        assert command[-4:-1] == [SCRIPT, "llamafactory", "plan.json"]
    # accelerate starts TRL's ranks: our script asks for them, once
    assert trl_attempt(plan_for(folder, "trl", gpus=4), "plan.json", {})[1:3] == [SCRIPT, "trl"]


@pytest.mark.parametrize(("trainer", "entry"), [("trl", "trl-rank"), ("llamafactory", "llamafactory")])
def test_inside_somebody_elses_launcher_no_further_one_is_started(folder, trainer, entry):
    env = {"RANK": "1", "WORLD_SIZE": "4"}
    command = ATTEMPTS[trainer](plan_for(folder, trainer, gpus=4), "plan.json", env)
    assert command[:3] == [sys.executable, SCRIPT, entry]


@pytest.mark.parametrize("trainer", FILES)
def test_what_is_handed_over(folder, trainer, monkeypatch, tmp_path_factory):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    first = handed(folder, trainer)
    assert first["model_name_or_path"] == str(folder / "model")  # it looks in the working folder alone
    assert first["output_dir"] == str(folder)
    assert first["per_device_train_batch_size"] == 4
    assert "resume_from_checkpoint" not in first
    changed = {"attempt": 2, "micro_batch_size": 2, "gradient_accumulation_steps": 2, "resume_from": "/c"}
    again = handed(folder, trainer, eval_batch_size=3, **changed)
    assert again["per_device_train_batch_size"] == again["gradient_accumulation_steps"] == 2
    assert (again["per_device_eval_batch_size"], again["resume_from_checkpoint"]) == (3, "/c")


def test_a_batch_that_the_trainer_would_find_itself_is_ours_to_choose_after_a_restart(folder):
    text = yaml.safe_dump({**TRL, "auto_find_batch_size": True})
    assert handed(folder, "trl", text)["auto_find_batch_size"] is True
    assert handed(folder, "trl", text, attempt=2)["auto_find_batch_size"] is False


def test_a_stage_without_checkpoints_to_go_on_from_begins_anew(folder, vramwise):
    config = write(folder, "llamafactory", stage="rm", per_device_train_batch_size=2)
    assert vramwise("train", config).exit_code == 0
    assert (folder / "out" / "seen.txt").read_text().splitlines() == ["2 1 None", "1 2 None"]
    refused = vramwise("train", config, "--resume")
    assert refused.exit_code == 2
    assert "LLaMA-Factory cannot go on from a checkpoint in stage rm" in str(refused.exception)


def test_llamafactory_does_not_go_on_by_itself(folder):
    assert handed(folder, "llamafactory")["overwrite_output_dir"] is True
    assert "overwrite_output_dir" not in handed(folder, "llamafactory", resume_from="/c")


def test_steps_that_share_a_generation_keep_their_rows(folder):
    text = yaml.safe_dump({**TRL, "steps_per_generation": 2})
    changed = {"attempt": 2, "micro_batch_size": 1, "gradient_accumulation_steps": 4}
    assert handed(folder, "trl", text, **changed)["steps_per_generation"] == 8


def test_the_allocator_in_a_files_env_stays_unless_the_command_line_says_otherwise(folder):
    block = {"PYTORCH_ALLOC_CONF": "max_split_size_mb:64", "OTHER": "1"}
    config = write(folder, "trl", env=block)
    kept = prepared(config, random_weights=False).plan
    assert kept.allocator == "max_split_size_mb:64"
    assert read(trl_attempt(kept, "p", {}))["env"] == block
    said = prepared(config, random_weights=False, target={"alloc_conf": "expandable_segments:True"}).plan
    assert read(trl_attempt(said, "p", {}))["env"] == {"OTHER": "1"}


def test_the_python_of_a_command(tmp_path):
    beside = tmp_path / "python"
    beside.touch()
    command = tmp_path / "trl"
    for line, python in ((f"#!{sys.executable}", sys.executable), ("#!/bin/sh", str(beside)), ("", str(beside))):
        command.write_text(line + "\n")
        assert extras.python_of(str(command)) == python


def test_the_versions_are_those_of_the_trainers_own_environment(folder):
    other = folder / "other"
    site = other / "lib" / "python3.12" / "site-packages"
    for name in ("trl-1.14.1", "transformers-5.20.1", "torch-2.9.0"):
        (site / f"{name}.dist-info").mkdir(parents=True)
    (other / "bin").mkdir()
    (other / "bin" / "python").touch()
    command = folder / "bin" / "trl"
    assert extras.site_of(str(command)) == ()  # our own Python
    command.write_text(f"#!{other / 'bin' / 'python'}\n")
    assert extras.site_of(str(command)) == (str(site),)
    options = TrainOptions(target=Options(), engine="trl")
    target = prepare(str(write(folder, "trl")), options).run.target
    assert (target.stack.parts("trl"), target.stack.parts("transformers")) == ((1, 14, 1), (5, 20, 1))
    assert target.torch == (2, 9)


@pytest.mark.parametrize(
    ("trainer", "options", "message"),
    [
        ("trl", {"engine": "axolotl"}, "is a file of TRL, which --engine axolotl does not read: use --engine trl"),
        ("llamafactory", {"engine": "llamafactory", "random_weights": True}, "LLaMA-Factory loads the model by itself"),
        ("trl", {"target": {"trainer": "trl:orpo"}}, "TRL has no command for orpo"),
    ],
)
def test_what_cannot_be_is_said(folder, trainer, options, message):
    with pytest.raises(VramwiseError, match=message):
        prepared(write(folder, trainer), **{"random_weights": False, **options})


@pytest.mark.parametrize(
    ("trainer", "line"),
    [
        ("trl", "--engine trl needs the trl command: pip install trl peft"),
        ("llamafactory", "--engine llamafactory needs the llamafactory-cli command: pip install llamafactory"),
    ],
)
def test_a_trainer_that_is_not_installed(folder, vramwise, monkeypatch, trainer, line):
    monkeypatch.setenv("PATH", "/nowhere")
    done = vramwise("train", write(folder, trainer), "--engine", trainer)
    assert (done.exit_code, str(done.exception)) == (2, line)


@pytest.mark.usefixtures("short_searches")
def test_a_run_that_does_not_fit_is_told_what_helps_in_the_trainers_own_keys(folder, vramwise):
    config = write(
        folder,
        "trl",
        model_name_or_path="Qwen/Qwen2.5-0.5B",
        use_peft=True,
        gradient_checkpointing=False,
        max_length=2048,
    )
    done = vramwise("train", config, "--gpu", "8GB", "--torch", "2.13")
    assert done.exit_code == 1
    changes = done.output.partition("changes that keep the training result:")[2]
    assert "per_device_train_batch_size: " in changes
    assert "not started" in changes
    assert not (folder / "out").exists()
