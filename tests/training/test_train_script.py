"""`vramwise train train.py`: the user's own script, unmodified, under the guard; a stand-in transformers in the child."""

import sys

import pytest

from vramwise.errors import VramwiseError
from vramwise.training.guard.memory_log import read_log
from vramwise.training.hosted.entries import SCRIPT
from vramwise.training.parent import engine_script
from vramwise.training.plan import TrainPlan, read_plan

TORCH = "class cuda:\n    is_available = staticmethod(lambda: False)\n"
# Like the real one: Trainer is in a module that is loaded when somebody asks for it.
TRANSFORMERS = """
AutoModelForCausalLM = None

def __getattr__(name):
    if name in ("Trainer", "TrainingArguments", "TrainerCallback"):
        import importlib
        return getattr(importlib.import_module("transformers.trainer"), name)
    raise AttributeError(name)
"""
TRAINER = """
import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

class TrainerCallback:
    pass

@dataclass
class TrainingArguments:
    output_dir: str
    per_device_train_batch_size: int = 8
    per_device_eval_batch_size: int = 8
    gradient_accumulation_steps: int = 1
    auto_find_batch_size: bool = False
    world_size: int = 1

    def __post_init__(self):
        self.checked = True

class Trainer:
    def __init__(self, model=None, args=None, train_dataset=None):
        self.callbacks, self.args = [], args
        self.state = SimpleNamespace(global_step=0, max_steps=4)

    def add_callback(self, callback):
        self.callbacks.append(callback)

    def tell(self, event):
        for callback in self.callbacks:
            getattr(callback, event, lambda *words, **more: None)(self.args, self.state, SimpleNamespace())

    def evaluate(self):
        self.tell("on_evaluate")

    def train(self, resume_from_checkpoint=None):
        folder = Path(self.args.output_dir)
        folder.mkdir(exist_ok=True)
        with (folder / "seen.txt").open("a") as file:
            file.write(f"{self.args.per_device_train_batch_size} {self.args.gradient_accumulation_steps} "
                       f"{resume_from_checkpoint and Path(resume_from_checkpoint).name}\\n")
        self.tell("on_train_begin")
        for step in range(4):
            self.tell("on_step_begin")
            if step == 2 and self.args.per_device_train_batch_size > 1:
                raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
            self.state.global_step = step + 1
            self.tell("on_step_end")
            if step == 1:
                (folder / "checkpoint-2").mkdir(exist_ok=True)
                (folder / "checkpoint-2" / "trainer_state.json").write_text(json.dumps({"global_step": 2}))
        self.tell("on_train_end")
"""
TRAIN = """
import sys, argparse
import beside  # a module of the script's own folder
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=2)
options = parser.parse_args()
assert __name__ == "__main__"
assert sys.argv[0].endswith("train.py")
args = TrainingArguments(output_dir="out", per_device_train_batch_size=options.batch, gradient_accumulation_steps=1)
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B") if beside.REAL else None
trainer = Trainer(model=model, args=args, train_dataset=[])
trainer.train()
open("out/finished", "w").close()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, text in {
        "site/torch/__init__.py": TORCH,
        "site/transformers/__init__.py": TRANSFORMERS,
        "site/transformers/trainer.py": TRAINER,
        "train.py": TRAIN,
        "beside.py": "REAL = False\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.setattr(engine_script, "users_python", lambda: sys.executable)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def seen(folder):
    return (folder / "out" / "seen.txt").read_text().splitlines()


def test_a_script_that_runs_out_of_memory_goes_on_with_smaller_batches(folder, vramwise, capfd):
    done = vramwise("train", "train.py", "--torch", "2.13", "--", "--batch", "4")
    assert done.exit_code == 0, done.output
    assert seen(folder) == ["4 1 None", "2 2 checkpoint-2", "1 4 checkpoint-2"]
    assert (folder / "train.py").read_text() == TRAIN
    assert (folder / "out" / "finished").exists()
    assert "2.0 GiB requested" in done.output
    assert "micro-batch × accumulation 4 × 1 → 2 × 2, effective batch as before" in done.output
    assert "per_device_train_batch_size 4 → 1, gradient_accumulation_steps 1 → 4" in capfd.readouterr().err
    log = read_log(folder / "out" / "memory.jsonl")
    assert [record["micro_batch_size"] for record in log.of_kind("start")] == [4, 2, 1]
    assert vramwise("report", folder / "out").exit_code == 0


def test_batches_that_the_source_does_not_tell_are_learned_from_the_run(folder, vramwise):
    (folder / "train.py").write_text(TRAIN.replace("=options.batch", "=len(open('n').read())"))
    (folder / "n").write_text("xxxxxx")
    done = vramwise("train", "train.py", "--torch", "2.13")
    assert done.exit_code == 0, done.output
    assert seen(folder)[0] == "6 1 None"
    assert seen(folder)[-1] == "1 6 checkpoint-2"
    assert "not read" in done.output


def test_an_error_of_the_script_is_its_own(folder, vramwise, capfd):
    (folder / "train.py").write_text(TRAIN + "raise SystemExit(3)\n")
    done = vramwise("train", "train.py", "--torch", "2.13", "--", "--batch", "1")
    assert done.exit_code == 3
    assert "trying again" not in done.output
    (folder / "train.py").write_text(TRAIN.replace("trainer.train()", "raise KeyError('mine')"))
    assert vramwise("train", "train.py").exit_code == 1
    assert "KeyError: 'mine'" in capfd.readouterr().err


def test_recovery_can_be_switched_off(folder, vramwise):
    done = vramwise("train", "train.py", "--no-recover", "--", "--batch", "4")
    assert done.exit_code == 75
    assert seen(folder) == ["4 1 None"]


def test_a_launch_line_runs_the_script_through_our_entry(folder):
    words = ["torchrun", "--nproc_per_node", "2", "train.py", "--batch", "4"]
    assert engine_script.command_of(words) == (tuple(words[:3]), "train.py", ("--batch", "4"))
    plan = make(folder, command=("torchrun", "--nproc_per_node", "2"), arguments=("--batch", "4"))
    command = engine_script.script_attempt(plan, "plan.json", {})
    assert command == [
        "torchrun",
        "--nproc_per_node",
        "2",
        SCRIPT,
        "script",
        "plan.json",
        plan.config_path,
        "--batch",
        "4",
    ]
    (folder / "plan.json").write_text(plan.to_json())
    assert read_plan(folder / "plan.json") == plan
    with pytest.raises(VramwiseError, match="starts no script"):
        engine_script.command_of(["trl", "sft", "--model_name_or_path", "x"])


def make(folder, **changes) -> TrainPlan:
    from plans import make_plan

    return make_plan(folder, engine="script", **changes)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["note.ipynb"], "is a notebook, which train does not run"),
        (["config.yml", "more"], "unexpected extra arguments"),
        (["config.yml", "--set", "a=1"], "are for scripts"),
        (["train.py", "--random-weights"], "not possible with a script"),
        (["empty.py"], "calls no known trainer"),
    ],
)
def test_what_cannot_be_run_is_said(folder, vramwise, words, sentence):
    (folder / "empty.py").write_text("print('no training here')\n")
    done = vramwise("train", *words)
    assert done.exit_code == 2
    assert sentence in done.output + str(done.exception)


def test_a_python_that_is_too_old_for_the_guard_is_named(folder, monkeypatch):
    monkeypatch.setattr(engine_script, "_OLDEST", (99, 0))
    with pytest.raises(VramwiseError, match=r"needs 99\.0 or newer"):
        engine_script.site_of_python([sys.executable])
