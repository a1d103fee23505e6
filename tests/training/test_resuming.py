"""Going on: from a whole checkpoint of the same settings and data; anything else is said first."""

import json
import shutil
from pathlib import Path

import pytest

from installed import needs
from tiny_runs import losses, make_folder, prepared, train_here, write_config
from vramwise.errors import VramwiseError
from vramwise.training.checkpoints import MARKER, checkpoints, latest_whole, read_marker

pytestmark = needs("torch", "transformers")

SAVES = {"save_steps": 2, "save_strategy": None, "max_steps": 6}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run to its end: checkpoints 2, 4 and 6."""
    folder = make_folder(tmp_path_factory.mktemp("trained"), samples=30)
    trainer = train_here(write_config(folder, **SAVES))
    return folder, losses(trainer)


@pytest.fixture
def folder(trained, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(trained[0], copy)
    return copy


def config_in(folder, **changes):
    return write_config(folder, **{**SAVES, **changes})


def decisions(plan, name):
    return [one for one in plan.decisions if one.name == name]


@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json", "config.json"]
)
def test_a_damaged_last_checkpoint_is_passed_over(folder, name):
    path = folder / "out" / "checkpoint-6" / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    plan = prepared(config_in(folder), resume=True).plan
    assert Path(plan.resume_from).name == "checkpoint-4"
    [said] = decisions(plan, "resume")
    assert said.value == "checkpoint-4"
    assert said.why.startswith(f"checkpoint-6 is not whole: {name} has ")


def test_the_run_goes_on_from_the_one_before_with_the_same_losses(folder, trained):
    (folder / "out" / "checkpoint-6" / "optimizer.pt").write_bytes(b"PK")
    config = config_in(folder)
    trainer = train_here(config, plan=prepared(config, resume=True).plan)
    assert losses(trainer) == trained[1]
    assert [one.name for one in checkpoints(folder / "out")] == ["checkpoint-2", "checkpoint-4", "checkpoint-6"]
    assert Path(latest_whole(folder / "out").folder).name == "checkpoint-6"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seed": 7}, r"seed 42 \(now 7\)"),
        ({"sequence_len": 32}, r"sequence_len 64 \(now 32\)"),
        ({"learning_rate": 0.5}, r"learning_rate 0.01 \(now 0.5\)"),
        ({"optimizer": "sgd"}, r"optimizer adamw_torch \(now sgd\)"),
        ({"adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_linear": True}, r"adapter none \(now lora\)"),
        ({"micro_batch_size": 8}, r"effective batch 4 \(now 8\)"),
    ],
)
def test_other_settings_ask_for_force(folder, changes, said):
    config = config_in(folder, **changes)
    with pytest.raises(VramwiseError, match=rf"checkpoint-6 was trained with .*{said}.*--force"):
        prepared(config, resume=True)
    plan = prepared(config, resume=True, force=True).plan
    assert Path(plan.resume_from).name == "checkpoint-6"
    assert [one.value for one in decisions(plan, "resume")] == ["forced"]
    assert prepared(config, fresh=True).plan.resume_from is None


def test_other_batches_of_the_same_size_and_more_steps_are_the_same_run(folder):
    config = config_in(folder, micro_batch_size=2, gradient_accumulation_steps=2, max_steps=8)
    assert Path(prepared(config, resume=True).plan.resume_from).name == "checkpoint-6"


def test_other_data_asks_for_force(folder):
    text = (folder / "samples.jsonl").read_text()
    (folder / "samples.jsonl").write_text(text.replace("apple", "boat"))
    config = config_in(folder, max_steps=8)
    with pytest.raises(VramwiseError, match=r"checkpoint-6 was trained with other data .*--force"):
        train_here(config, plan=prepared(config, resume=True).plan)
    train_here(config, plan=prepared(config, resume=True, force=True).plan)
    assert Path(latest_whole(folder / "out").folder).name == "checkpoint-8"


def test_a_resumed_run_is_the_same_run_and_a_new_one_another(folder):
    before = read_marker(folder / "out" / "checkpoint-6").run
    assert prepared(config_in(folder), resume=True).plan.run == before
    assert prepared(config_in(folder), fresh=True).plan.run not in ("", before)


def test_beside_a_checkpoint_the_user_says_whether_to_go_on(folder):
    with pytest.raises(VramwiseError, match=r"checkpoint-6 is a complete checkpoint .* --resume, .* --fresh"):
        prepared(config_in(folder))


def test_resume_takes_the_newest_of_the_same_settings(folder):
    config = config_in(folder, seed=7, max_steps=2)
    train_here(config, plan=prepared(config, fresh=True).plan)
    assert Path(prepared(config, resume=True).plan.resume_from).name == "checkpoint-2-vramwise"
    assert Path(prepared(config_in(folder), resume=True).plan.resume_from).name == "checkpoint-6"


def make_foreign(folder):
    """As another trainer would have left it: the same files, no marker."""
    for one in checkpoints(folder / "out"):
        (one / MARKER).unlink()
    return folder / "out"


def test_checkpoints_of_others_are_said_and_one_is_offered(folder):
    out = make_foreign(folder)
    (out / "checkpoint-6" / "optimizer.pt").write_bytes(b"")
    plan = prepared(config_in(folder), resume=True).plan
    assert plan.resume_from is None
    [said] = decisions(plan, "other checkpoints")
    assert said.value == "3: checkpoint-2, checkpoint-4, checkpoint-6"
    assert said.why.endswith(f"--resume-from {out / 'checkpoint-4'}")


def test_a_run_goes_on_from_anothers_checkpoint_and_leaves_it_as_it_was(folder, trained):
    out = make_foreign(folder)
    before = {path: path.read_bytes() for one in checkpoints(out) for path in one.iterdir()}
    config = config_in(folder)
    plan = prepared(config, resume_from=str(out / "checkpoint-2")).plan
    trainer = train_here(config, plan=plan)
    assert losses(trainer) == trained[1]
    assert {path: path.read_bytes() for path in before} == before
    assert (out / "checkpoint-6-vramwise" / MARKER).is_file()


@pytest.mark.parametrize("name", ["trainer_state.json", "optimizer.pt", "scheduler.pt", "model.safetensors"])
def test_a_damaged_checkpoint_of_anothers_is_refused(folder, name):
    out = make_foreign(folder)
    path = out / "checkpoint-4" / name
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(VramwiseError, match=rf"checkpoint-4 cannot be resumed: {name}"):
        prepared(config_in(folder), resume_from=str(out / "checkpoint-4"))
    path.unlink()
    with pytest.raises(VramwiseError, match=r"checkpoint-4 cannot be resumed: .*(is missing|no model)"):
        prepared(config_in(folder), resume_from=str(out / "checkpoint-4"))


def test_a_damaged_checkpoint_that_is_named_is_refused(folder):
    path = folder / "out" / "checkpoint-4"
    (path / "optimizer.pt").unlink()
    with pytest.raises(VramwiseError, match=r"--resume-from: checkpoint-4 is not whole: optimizer.pt is missing"):
        prepared(config_in(folder), resume_from=str(path))
    with pytest.raises(VramwiseError, match="resume_from_checkpoint: checkpoint-4 is not whole"):
        prepared(config_in(folder, resume_from_checkpoint=str(path)))


def test_the_end_of_a_run_that_keeps_the_best_leaves_others_alone(tmp_path):
    """transformers itself would delete every checkpoint but the best at the end, whoever wrote it."""
    folder = make_folder(tmp_path, samples=30)
    theirs = folder / "out" / "checkpoint-500"
    theirs.mkdir(parents=True)
    (theirs / "trainer_state.json").write_text(json.dumps({"global_step": 500}))
    settings = {"save_total_limit": 1, "load_best_model_at_end": True, "val_set_size": 4, "eval_steps": 2}
    trainer = train_here(config_in(folder, **settings))
    assert (theirs / "trainer_state.json").is_file()
    best = Path(trainer.state.best_model_checkpoint)
    assert best.parent == folder / "out"
    assert best.is_dir()
    state = json.loads((Path(latest_whole(folder / "out").folder) / "trainer_state.json").read_text())
    assert Path(state["best_model_checkpoint"]).is_dir()
