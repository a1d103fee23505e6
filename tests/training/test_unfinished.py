"""A run that is stopped at any step and resumed has the losses, evaluations and best checkpoint of an undisturbed one."""

import json
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from installed import needs
from tiny_runs import make_folder, prepared, train_here, write_config
from vramwise.errors import VramwiseError
from vramwise.training.checkpoints import latest_whole, read_marker, seal

pytestmark = needs("torch", "transformers")

EVERY_TWO = {
    "val_set_size": 8,
    "save_strategy": None,
    "eval_steps": 2,
    "save_steps": 4,
    "num_epochs": 2,
    "metric_for_best_model": "eval_loss",
    "greater_is_better": False,
    "lora_dropout": 0.3,
    "adapter": "lora",
    "lora_r": 4,
    "lora_target_linear": True,
    "micro_batch_size": 4,
}
EACH_EPOCH = {**EVERY_TWO, "eval_steps": None, "save_steps": None, "eval_strategy": "epoch", "save_strategy": "epoch"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("unfinished"), samples=32)  # 24 train: six steps an epoch


def config(folder, name, **changes):
    return write_config(folder, f"{name}.yml", output_dir=str(folder / name), **changes)


def stopped_at(step, path):
    """Train, with a signal while the step is computed."""
    from transformers import TrainerCallback

    from vramwise.training.worker.stop import StopOnSignal

    class Signal(TrainerCallback):
        def on_step_begin(self, args, state, control, **more):
            if state.global_step + 1 == step:
                signal.raise_signal(signal.SIGTERM)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        stop = StopOnSignal()
        train_here(path, callbacks=[Signal(), stop])
        assert stop.exit_code == 143
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def told(trainer):
    """Return what was logged, without times."""
    times = ("runtime", "per_second", "train_loss", "total_flos")
    return [
        {key: value for key, value in one.items() if not any(time in key for time in times)}
        for one in trainer.state.log_history
    ]


def best(trainer):
    state = trainer.state
    name = state.best_model_checkpoint and Path(state.best_model_checkpoint).name
    return state.best_metric, state.best_global_step, name


_undisturbed = {}


def undisturbed(folder, name, changes):
    if name not in _undisturbed:
        _undisturbed[name] = train_here(config(folder, name, **changes))
    return _undisturbed[name]


@pytest.mark.parametrize(
    ("name", "changes", "steps"),
    [
        ("steps", EVERY_TWO, (2, 4, 5, 6, 12)),
        ("epochs", EACH_EPOCH, (3, 6, 12)),
        ("rarely-logged", {**EVERY_TWO, "logging_steps": 3}, (4,)),
    ],
)
def test_nothing_is_lost_by_a_stop(folder, name, changes, steps):
    whole = undisturbed(folder, name, changes)
    assert len({one["eval_loss"] for one in told(whole) if "eval_loss" in one}) > 1
    for step in steps:
        path = config(folder, f"{name}-{step}", **changes)
        stopped_at(step, path)
        saved = Path(latest_whole(folder / f"{name}-{step}").folder)
        state = json.loads((saved / "trainer_state.json").read_text())
        assert state["global_step"] == step
        assert not [one for one in state["log_history"] if "eval_loss" in one and one["step"] == step]
        resumed = train_here(path, plan=prepared(path, resume=True).plan)
        assert told(resumed) == told(whole)
        assert best(resumed) == best(whole)


def test_another_trainer_makes_up_for_it_too(folder, tmp_path):
    """Trainers of other projects get it when they are created under the guard."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainerCallback, TrainingArguments

    from vramwise.training.hosted.guarding import Stopped, Watched
    from vramwise.training.plan import GuardThresholds

    class OtherTrainer(Trainer):
        pass

    class Signal(TrainerCallback):
        def on_step_begin(self, args, state, control, **more):
            if state.global_step + 1 == 3 and args.output_dir.endswith("stopped") and not args.resume_from_checkpoint:
                signal.raise_signal(signal.SIGTERM)

    def trained(name, resume=None):
        torch.manual_seed(1)
        rows = [{"input_ids": one, "labels": one} for one in torch.randint(3, 1000, (16, 8)).tolist()]
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(str(folder / "model")))
        said = {"eval_strategy": "steps", "eval_steps": 3, "save_steps": 3, "logging_steps": 1, "report_to": []}
        out = str(tmp_path / name)
        arguments = TrainingArguments(
            out, max_steps=6, learning_rate=0.01, resume_from_checkpoint=resume, use_cpu=True, **said
        )
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        watched = Watched(SimpleNamespace(guard=GuardThresholds(enabled=False)))
        try:
            trainer = OtherTrainer(model, arguments, train_dataset=rows, eval_dataset=rows[:4], callbacks=[Signal()])
            watched._join(trainer)
            with suppress(Stopped):
                trainer.train(resume_from_checkpoint=resume)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        assert type(trainer).__name__ == "OtherTrainer"
        return trainer

    whole, stopped = trained("whole"), trained("stopped")
    assert stopped.state.global_step == 3
    assert told(trained("stopped", str(tmp_path / "stopped" / "checkpoint-3"))) == told(whole)


def test_early_stopping_counts_on(folder):
    """Its patience ends with the evaluation that was put off: not one step more is trained."""
    changes = {**EVERY_TWO, "learning_rate": 1e-12, "early_stopping_patience": 1, "save_steps": 2, "num_epochs": 4}
    whole = undisturbed(folder, "early", changes)
    last = whole.state.global_step
    assert last < whole.state.max_steps
    path = config(folder, "early-resumed", **changes)
    stopped_at(last, path)
    resumed = train_here(path, plan=prepared(path, resume=True).plan)
    assert (told(resumed), best(resumed)) == (told(whole), best(whole))


def test_a_bad_file_is_one_sentence(folder):
    from vramwise.training.worker.unfinished import FILE

    path = config(folder, "bad", **EVERY_TWO, max_steps=4)
    stopped_at(2, path)
    saved = Path(latest_whole(folder / "bad").folder)
    marker = read_marker(saved)
    (saved / FILE).write_text('{"evaluate": true}')
    seal(saved, step=2, run=marker.run, settings=marker.settings)
    with pytest.raises(VramwiseError, match="cannot be resumed: KeyError"):
        train_here(path, plan=prepared(path, resume=True).plan)
    shutil.rmtree(folder / "bad")
