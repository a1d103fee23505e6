"""Entry points of other trainers, used like their own commands.

TRL's command computes the arguments of `accelerate launch` and starts one of its scripts; here it is the same command
with our script, which then runs TRL's. LLaMA-Factory's command calls one function in each process of torchrun.
"""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.training.plan import TrainPlan, read_plan

SCRIPT = str(Path(__file__).with_name("start.py"))
Entry = Callable[[TrainPlan, list[str]], int]


def enter(arguments: list[str]) -> int:
    """Run `ENTRY PLAN.json WORDS…`: enter the trainer; user errors are one sentence and code 2."""
    name, plan_path, *words = arguments
    try:
        return ENTRIES[name](read_plan(plan_path), [plan_path, *words])
    except VramwiseError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2


def trl_command(plan: TrainPlan, words: list[str]) -> int:
    """Run `trl KIND --config FILE` with our script instead of TRL's. Words: PLAN, KIND, FILE, more for accelerate."""
    plan_path, kind, file, *more = words
    launcher: Any = import_module("trl.cli.accelerate_launcher")
    command = import_module("trl.cli.main")
    theirs = launcher.launch_training_script

    def launch(*, launch_args: list[str], **_: object) -> None:
        theirs(script_name=SCRIPT, launch_args=launch_args, training_script_args=["trl-rank", plan_path, kind, file])

    launcher.launch_training_script = launch
    try:
        return int(command.main([kind, "--config", file, "--num_processes", str(plan.gpus), *more]) or 0)
    except subprocess.CalledProcessError as error:  # the child has shown its own error
        return error.returncode


def trl_rank(plan: TrainPlan, words: list[str]) -> int:
    """Run one process of TRL's training: its script, as if started by name."""
    _plan_path, kind, file = words

    def script() -> None:
        sys.argv = [f"trl {kind}", "--config", file]
        # TRL holds samples out before it sets its seed: a resumed run would hold out others
        import_module("transformers").set_seed(plan.seed)
        runpy.run_module(f"trl.scripts.{kind}", run_name="__main__")

    return _guarded(plan, script)


def llamafactory(plan: TrainPlan, words: list[str]) -> int:
    """Run one process of `llamafactory-cli train FILE`. Words: PLAN, FILE."""
    _plan_path, file = words

    def train() -> None:
        sys.argv = ["llamafactory-cli", file]
        import_module("llamafactory.train.tuner").run_exp()

    return _guarded(plan, train)


def script(plan: TrainPlan, words: list[str]) -> int:
    """Run one process of the user's own script. Words: PLAN, FILE, ARGUMENTS…"""
    from vramwise.training.hosted.own_script import run_script

    _plan_path, file, *arguments = words
    return run_script(plan, file, arguments)


def _guarded(plan: TrainPlan, train: Callable[[], None]) -> int:
    from vramwise.training.hosted.guarding import guarded

    return guarded(plan, train)


ENTRIES: Mapping[str, Entry] = {
    "trl": trl_command,
    "trl-rank": trl_rank,
    "llamafactory": llamafactory,
    "script": script,
}
