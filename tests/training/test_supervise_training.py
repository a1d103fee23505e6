"""Real training on the CPU, deterministic: out-of-memories, signals and kills leave the losses as they were."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from installed import needs
from supervised_runs import TINY, WORKER, environment, losses
from vramwise.training.checkpoints import checkpoints, latest_whole, step_of
from vramwise.training.parent.prepare import TrainOptions, prepare
from vramwise.training.parent.supervise import supervise
from vramwise.training.plan import write_plan

pytestmark = needs("torch", "transformers", "accelerate")

STEPS = 12
CONFIG = f"""
base_model: {TINY / "model"}
datasets: [{{path: {TINY / "samples.jsonl"}, type: alpaca}}]
val_set_size: 0.05
sequence_len: 64
pad_to_sequence_len: true
micro_batch_size: 4
gradient_accumulation_steps: 1
eval_batch_size: 4
max_steps: {STEPS}
eval_steps: 4
save_total_limit: 2
optimizer: adamw_torch
learning_rate: 0.003
logging_steps: 1
"""


def plan_in(folder, *, resume=False, save_steps=1):
    config = folder / "config.yml"
    config.write_text(CONFIG + f"output_dir: {folder / 'out'}\nsave_steps: {save_steps}\n")
    return prepare(str(config), TrainOptions(random_weights=True, resume=resume)).plan


class Server:
    """Runs workers in forks of one process that has imported everything."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, WORKER, "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        assert self._answer("ready") == 0

    def start(self, plan):
        self.process.stdin.write(f"{write_plan(plan)}\n")
        self.process.stdin.flush()
        return self._answer("pid")

    def code(self):
        return self._answer("code")

    def _answer(self, expected):
        word, number = self.process.stdout.readline().split()
        assert word == expected  # never kill a wrong number
        return int(number)


@pytest.fixture(scope="module")
def server():
    one = Server()
    yield one
    one.process.stdin.close()
    one.process.wait(300)
    one.process.stdout.close()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, server):
    folder = tmp_path_factory.mktemp("undisturbed")
    started = time.monotonic()
    server.start(plan_in(folder))
    assert server.code() == 0
    assert sorted(losses(folder)) == list(range(1, STEPS + 1))
    return folder, time.monotonic() - started


@pytest.mark.nightly  # by day a stub recovers (test_supervise.py), and a smaller batch has the same losses (test_same_losses.py)
def test_an_injected_out_of_memory_recovers_with_the_same_losses(tmp_path, undisturbed):
    """In training at step 4 above micro-batch 2, and in every evaluation above batch 2: two restarts."""
    folder, _ = undisturbed
    said = []
    command = lambda plan, path, env: [sys.executable, WORKER, path]  # noqa: E731
    env = environment(micro=2, eval=2, **{"from": 4})
    assert supervise(plan_in(tmp_path), say=said.append, command=command, env=env) == 0
    assert losses(tmp_path) == pytest.approx(losses(folder), abs=1e-4)
    assert losses(tmp_path, "eval_loss") == pytest.approx(losses(folder, "eval_loss"), abs=1e-4)
    restarts = [line for line in said if line.startswith("trying again")]
    assert "4 × 1 → 2 × 2" in restarts[0]
    assert restarts[0].endswith("checkpoint-3")
    assert "eval batch 4 → 2" in restarts[1]
    assert len(restarts) == 2
    assert "out of memory in train at step 4 (micro-batch 4): 2.0 GiB requested" in said
    record = json.loads((tmp_path / "out" / "oom.json").read_text())
    assert (record["phase"], record["attempt"], record["held"]) == ("eval", 2, None)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kills", [2, 10])
def test_kill_9_at_random_moments_loses_nothing(tmp_path, undisturbed, server, kills):
    """Killed while loading, some steps after the last kill, or within a step or save: measured in steps, not seconds."""
    folder, seconds = undisturbed
    dice = random.Random(3)
    reached, killed = 0, 0
    while killed < kills:
        pid = server.start(plan_in(tmp_path, resume=True))
        wait_for_checkpoint(tmp_path / "out", reached + dice.choice((0, 1, 1, 2, 3)))
        time.sleep(dice.random() * seconds / STEPS)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        if server.code() != -signal.SIGKILL:  # it had ended before: begin another run
            assert losses(tmp_path) == losses(folder)
            shutil.rmtree(tmp_path / "out")
            reached = 0
            continue
        killed += 1
        last = latest_whole(tmp_path / "out").folder
        step = 0 if last is None else int(last.rpartition("-")[2])
        assert step >= reached, "a kill lost a complete checkpoint"
        reached = step
    server.start(plan_in(tmp_path, resume=True))
    assert server.code() == 0
    assert losses(tmp_path) == losses(folder)
    assert losses(tmp_path, "eval_loss") == losses(folder, "eval_loss")


@pytest.mark.nightly  # by day a stub gets the signal (test_supervise.py), and the callback in the worker (test_stop.py)
def test_sigterm_saves_a_checkpoint_and_the_run_goes_on(tmp_path, undisturbed, server):
    folder, _ = undisturbed
    plan = plan_in(tmp_path, save_steps=1000)
    hold = tmp_path / "out" / "hold"
    hold.parent.mkdir()
    hold.touch()
    pid = server.start(plan)
    wait_for(lambda: (tmp_path / "out" / "memory.jsonl").exists())  # the guard has seen training begin
    os.kill(pid, signal.SIGTERM)
    hold.unlink()
    assert server.code() == 143
    assert latest_whole(tmp_path / "out").folder == str(tmp_path / "out" / "checkpoint-1")
    server.start(plan_in(tmp_path, resume=True, save_steps=1000))
    assert server.code() == 0
    assert losses(tmp_path) == losses(folder)


def wait_for_checkpoint(out, step):
    """Until the run has begun to save this step, or the last one."""
    wait_for(lambda: any(step_of(folder) >= min(step, STEPS) for folder in checkpoints(out)) if step else True)


def wait_for(happened, seconds=600):
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.005)
