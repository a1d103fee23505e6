"""The engines that start another trainer: none of them replaces files that its run did not write."""

import json
import shutil
from dataclasses import replace

import pytest
import stand_ins
import yaml

from hosted_files import FILES
from installed import needs_training
from replaced_runs import AXOLOTL, refused, state
from tiny_runs import make_folder, prepared, write_config
from vramwise.training.parent.own_files import recorded
from vramwise.training.parent.replacing import replaced_files


@pytest.fixture
def hosted(tmp_path, monkeypatch):
    stand_ins.install(tmp_path, monkeypatch)
    made = make_folder(tmp_path)
    for name in ("README.md", "model.safetensors"):
        (made / "model" / name).write_text(f"the user's {name}")
    return made


def write(folder, trainer, **changes):
    path = folder / f"{trainer}-sft.yaml"
    values = {**FILES[trainer], "output_dir": str(folder / "out"), "per_device_train_batch_size": 1, **changes}
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.mark.parametrize("trainer", FILES)
def test_a_hosted_trainer_is_not_started_over_the_base_model(hosted, vramwise, trainer):
    before = state(hosted / "model")
    config = write(hosted, trainer, model_name_or_path=str(hosted / "model"), output_dir=str(hosted / "model"))
    said = refused(vramwise, config)
    name = "config.json" if trainer == "llamafactory" else "model.safetensors"  # LoRA there, the whole model here
    assert name in said
    assert state(hosted / "model") == before


@pytest.mark.parametrize("name", ["README.md", "chat_template.jinja", "training_args.bin", "all_results.json"])
@pytest.mark.parametrize("trainer", FILES)
def test_a_hosted_trainer_is_not_started_over_others_files(hosted, vramwise, trainer, name):
    (hosted / "out").mkdir()
    (hosted / "out" / name).write_text("theirs")
    assert f"holds {name}, which" in refused(vramwise, write(hosted, trainer))
    assert (hosted / "out" / name).read_text() == "theirs"
    done = vramwise("train", write(hosted, trainer), "--force")
    assert done.exit_code == 0
    assert f"--force: replacing {name} in" in done.output


@pytest.mark.parametrize("trainer", FILES)
def test_the_users_own_config_in_output_dir_is_not_written_over(hosted, vramwise, trainer):
    (hosted / "out").mkdir()
    config = write(hosted, trainer).rename(hosted / "out" / ("trl.yml" if trainer == "trl" else "llamafactory.yml"))
    text = config.read_text()
    assert f"holds {config.name}, which" in refused(vramwise, config, "--trainer", trainer)
    assert config.read_text() == text


@pytest.mark.parametrize("trainer", FILES)
def test_checkpoints_of_others_are_not_written_over(hosted, vramwise, trainer):
    theirs = hosted / "out" / "checkpoint-2"
    theirs.mkdir(parents=True)
    (theirs / "trainer_state.json").write_text(json.dumps({"global_step": 2, "theirs": True}))
    assert "holds checkpoint-2, which" in refused(vramwise, write(hosted, trainer), "--fresh")
    assert "theirs" in (theirs / "trainer_state.json").read_text()
    assert vramwise("train", write(hosted, trainer), "--resume").exit_code == 0  # it goes on from there


@pytest.mark.parametrize("trainer", FILES)
def test_a_second_run_in_the_folder_of_an_earlier_one(hosted, vramwise, trainer):
    config = write(hosted, trainer)
    assert vramwise("train", config).exit_code == 0
    assert vramwise("train", config, "--fresh").exit_code == 0  # its checkpoint-2 is ours
    assert vramwise("train", config, "--resume").exit_code == 0


@pytest.mark.parametrize("trainer", FILES)
def test_a_base_model_that_is_a_checkpoint_in_output_dir(hosted, vramwise, trainer):
    base = hosted / "out" / "checkpoint-2"
    shutil.copytree(hosted / "model", base)
    config = write(hosted, trainer, model_name_or_path=str(base))
    for words in ((), ("--fresh",), ("--force",)):
        assert "a checkpoint in output_dir, which this run may replace or delete" in refused(vramwise, config, *words)


def test_an_adapter_that_is_trained_on_is_never_replaced(hosted, vramwise):
    out = hosted / "out"
    with recorded(out):  # an earlier run of ours wrote it: it is still what this run starts from
        for name in ("adapter_model.safetensors", "adapter_config.json"):
            (out / name).write_text("{}")
    shutil.copytree(out, hosted / "first")
    config = write(hosted, "llamafactory", adapter_name_or_path=f"{hosted / 'first'},{out}")
    for words in ((), ("--force",)):
        said = refused(vramwise, config, *words)
        assert "adapter_config.json belongs to the weights that adapter_name_or_path names" in said
    assert vramwise("train", write(hosted, "llamafactory", adapter_name_or_path=str(hosted / "first"))).exit_code == 0


@needs_training
def test_what_axolotl_writes(hosted):
    out = hosted / "out"
    out.mkdir()
    names = ["README.md", "axolotl.yml", "config.json", "debug.log", "tokenizer.json"]
    for name in (*names, "model.safetensors", "trainer_log.jsonl"):  # an adapter is trained, and not by LLaMA-Factory
        (out / name).write_text("theirs")
    (out / "checkpoint-3").mkdir()
    one = prepared(write_config(hosted, **AXOLOTL))
    plan = replace(one.plan, engine="axolotl")
    assert replaced_files(one.run, plan) == sorted([*names, "checkpoint-3"])
    assert replaced_files(one.run, replace(plan, resume_from=str(out / "checkpoint-3"))) == names
