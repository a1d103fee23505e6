"""Recovery, signals and kills, with a stand-in for the worker: what the supervisor decides, and that nothing is lost."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from plans import make_plan

from installed import PATIENCE
from vramwise.errors import VramwiseError
from vramwise.training.checkpoints import latest_whole
from vramwise.training.guard.memory_log import read_log
from vramwise.training.parent.folder_lock import locked
from vramwise.training.parent.recover import next_attempt
from vramwise.training.parent.supervise import supervise
from vramwise.training.plan import EXIT_OUT_OF_MEMORY, PredictedMemory, read_plan

HERE = Path(__file__).parent
STUB = str(HERE / "stub_worker.py")
SOURCE = str(HERE.parent.parent / "src")


def stub_command(plan, path, env):
    return [sys.executable, STUB, path]


def run(tmp_path, *, plan=None, advise=None, **script):
    said = []
    env = dict(os.environ) | {
        "PYTHONPATH": f"{SOURCE}{os.pathsep}{HERE.parent / 'helpers'}",
        "STUB": json.dumps({"steps": 12, "fits": 4, **script}),
    }
    code = supervise(plan or make_plan(tmp_path), say=said.append, advise=advise, command=stub_command, env=env)
    return code, said


def result(tmp_path):
    return json.loads((tmp_path / "result.json").read_text())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    assert run(folder) == (0, [])
    return result(folder)


def attempts(tmp_path):
    log = json.loads((tmp_path / "vramwise.json").read_text(encoding="utf-8"))["log"]
    return [(one["micro_batch_size"], one["gradient_accumulation_steps"]) for one in log if one["what"] == "attempt"]


def test_an_out_of_memory_goes_on_from_the_checkpoint_with_half_the_micro_batch(tmp_path, undisturbed):
    code, said = run(tmp_path, oom_at=8, fits=2, save_every=3)
    assert code == 0
    assert result(tmp_path) == undisturbed
    assert attempts(tmp_path) == [(4, 1), (2, 2)]
    assert said[0] == "out of memory in train at step 8 (micro-batch 4): 1.5 GiB requested"
    assert "4 × 1 → 2 × 2" in said[1]
    assert "checkpoint-6" in said[1]


def test_before_the_first_checkpoint_it_starts_again(tmp_path, undisturbed):
    code, said = run(tmp_path, oom_at=2, fits=1)
    assert (code, result(tmp_path)) == (0, undisturbed)
    assert attempts(tmp_path) == [(4, 1), (2, 2), (1, 4)]
    assert said[1].endswith("from the start")


def test_at_micro_batch_1_it_says_what_else_would_help(tmp_path):
    code, said = run(tmp_path, oom_at=2, fits=0, advise=lambda plan: [f"at micro {plan.micro_batch_size}: checkpoint"])
    assert code == EXIT_OUT_OF_MEMORY
    assert attempts(tmp_path) == [(4, 1), (2, 2), (1, 4)]
    assert said[-2:] == ["no batch can be made smaller any more", "  at micro 1: checkpoint"]


def test_an_out_of_memory_in_eval_halves_the_eval_batch_only(tmp_path, undisturbed):
    plan = make_plan(tmp_path, eval_batch_size=8)
    code, said = run(tmp_path, plan=plan, eval_at=5, eval_fits=2, save_every=2)
    assert (code, result(tmp_path)) == (0, undisturbed)
    assert attempts(tmp_path) == [(4, 1)] * 3
    assert "eval batch 8 → 4" in said[1]
    assert read_plan(tmp_path / "vramwise.json").eval_batch_size == 2


def test_no_recover(tmp_path):
    code, said = run(tmp_path, plan=make_plan(tmp_path, recover=False), oom_at=2, fits=2)
    assert code == EXIT_OUT_OF_MEMORY
    assert attempts(tmp_path) == [(4, 1)]
    assert said[-1] == "not trying again: recovery is off"


def test_a_launcher_that_hides_the_exit_code(tmp_path, undisturbed):
    assert run(tmp_path, oom_at=3, fits=2, oom_code=1)[0] == 0
    assert result(tmp_path) == undisturbed


def test_a_record_of_an_earlier_run_means_nothing(tmp_path):
    run(tmp_path, plan=make_plan(tmp_path, recover=False), oom_at=2, fits=2)
    code = supervise(
        make_plan(tmp_path), say=lambda _: None, command=lambda *_: [sys.executable, "-c", "raise SystemExit(7)"]
    )
    assert code == 7


def test_checkpoints_of_an_earlier_run_are_not_resumed_from(tmp_path, undisturbed):
    assert run(tmp_path, steps=30, save_every=29)[0] == 0  # leaves checkpoint-29
    assert run(tmp_path, oom_at=2, fits=2)[0] == 0
    assert result(tmp_path) == undisturbed
    assert read_plan(tmp_path / "vramwise.json").resume_from is None


def test_every_decision_is_in_the_append_only_log_too(tmp_path):
    run(tmp_path, oom_at=3, fits=2)
    run(tmp_path)
    decisions = [one["what"] for one in read_log(tmp_path / "memory.jsonl").of_kind("decision")]
    assert decisions == ["attempt", "out-of-memory", "attempt", "end", "attempt", "end"]


def test_two_runs_do_not_share_a_folder(tmp_path):
    with start(tmp_path, pause=0.2, steps=10**6) as process:
        wait_for(tmp_path / "ready", process)
        with pytest.raises(VramwiseError, match="in use by another run"):
            run(tmp_path)
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)


def start(tmp_path, gpus=1, **script):
    """The supervisor in a process of its own, resuming from the last complete checkpoint."""
    code = (
        "import sys; sys.path[:0] = [sys.argv[2]]; from pathlib import Path\n"
        "from plans import make_plan; from test_supervise import stub_command\n"
        "from vramwise.training.checkpoints import latest_whole; from vramwise.training.parent.supervise import supervise\n"
        "out = Path(sys.argv[1]); plan = make_plan(out, resume_from=latest_whole(out).folder, gpus=int(sys.argv[3]))\n"
        "sys.exit(supervise(plan, say=print, command=stub_command))"
    )
    env = dict(os.environ) | {
        "PYTHONPATH": f"{SOURCE}{os.pathsep}{HERE.parent / 'helpers'}",
        "STUB": json.dumps({"steps": 12, "fits": 4, **script}),
    }
    words = [sys.executable, "-c", code, str(tmp_path), str(HERE), str(gpus)]
    return subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL)


def wait_for(path, process):
    end = time.monotonic() + PATIENCE
    while not path.exists():
        assert process.poll() is None, f"ended before {path} appeared"
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.01)


@pytest.mark.parametrize("launcher", [{}, {"gpus": 2, "stop_code": 1}], ids=["one process", "a launcher that says 1"])
def test_sigterm_saves_and_ends(tmp_path, launcher):
    with start(tmp_path, pause=0.05, steps=10**6, **launcher) as process:
        wait_for(tmp_path / "ready", process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 143
    assert int(latest_whole(tmp_path).folder.rpartition("-")[2]) > 0
    assert not (tmp_path / "result.json").exists()
    assert not (tmp_path / ".pids").exists()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("number", range(10))
def test_kill_9_at_any_moment_loses_nothing(tmp_path, undisturbed, number):
    """Supervisor or worker, while stepping or in the middle of a save: the same command again ends at the same place."""
    dice = random.Random(number)
    for _ in range(2):
        (tmp_path / "ready").unlink(missing_ok=True)
        with start(tmp_path, pause=0.01, save_every=1) as process:
            wait_for(tmp_path / "ready", process)
            time.sleep(dice.random() * 0.3)
            workers = [int(path.name) for path in (tmp_path / ".pids").glob("*")]
            victim = process.pid if number % 2 else dice.choice(workers or [process.pid])
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
            process.wait(PATIENCE)
        wait_until_free(tmp_path)
    with start(tmp_path) as process:
        assert process.wait(PATIENCE) == 0
    assert result(tmp_path) == undisturbed


def wait_until_free(folder):
    """Until no process of a run is left: the worker of a killed supervisor ends by itself, and the lock with it."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            with locked(folder):
                return
        except VramwiseError:
            assert time.monotonic() < end, "the worker of a killed supervisor does not end"
            time.sleep(0.02)


@pytest.mark.parametrize(
    ("before", "after"),
    [((4, 1), (2, 2)), ((3, 1), (1, 3)), ((6, 1), (3, 2)), ((5, 2), (2, 5)), ((3, 2), (1, 6)), ((2, 3), (1, 6))],
)
def test_without_a_prediction_the_batch_is_halved_and_the_product_kept(tmp_path, before, after):
    plan = make_plan(tmp_path, micro_batch_size=before[0], gradient_accumulation_steps=before[1])
    found = next_attempt(plan, "train", None).plan
    assert (found.micro_batch_size, found.gradient_accumulation_steps) == after


@pytest.mark.parametrize(("largest", "after"), [(4, (4, 3)), (3, (3, 4)), (1, (1, 12)), (0, (1, 12))])
def test_a_prediction_says_which_batch_comes_next(tmp_path, largest, after):
    plan = make_plan(tmp_path, micro_batch_size=6, gradient_accumulation_steps=2)
    found = next_attempt(plan, "train", None, lambda candidate: candidate.micro_batch_size <= largest)
    assert (found.plan.micro_batch_size, found.plan.gradient_accumulation_steps) == after
    assert ("predicted to fit" if largest else "predicted not to fit either") in found.message


def test_an_evaluation_gets_the_batch_that_is_predicted_to_fit(tmp_path):
    plan = make_plan(tmp_path, eval_batch_size=8)
    found = next_attempt(plan, "eval", None, lambda candidate: candidate.eval_batch_size <= 3)
    assert found.plan.eval_batch_size == 3
    assert next_attempt(plan, "eval", None).plan.eval_batch_size == 4


def test_a_restart_goes_straight_to_the_batch_that_fits(tmp_path):
    said = []
    env = dict(os.environ) | {
        "PYTHONPATH": f"{SOURCE}{os.pathsep}{HERE.parent / 'helpers'}",
        "STUB": json.dumps({"steps": 12, "oom_at": 2, "fits": 1}),
    }
    asked = []

    def fits(failed, candidate, facts):
        asked.append((failed.micro_batch_size, candidate.micro_batch_size, facts["phase"]))
        return candidate.micro_batch_size == 1

    assert supervise(make_plan(tmp_path), say=said.append, fits=fits, command=stub_command, env=env) == 0
    assert attempts(tmp_path) == [(4, 1), (1, 4)]
    assert asked == [(4, 2, "train"), (4, 1, "train")]


def test_a_signal_is_acknowledged_and_a_second_one_too(tmp_path):
    from vramwise.training.parent.child import Signals

    said = []
    signals = Signals(tmp_path / ".pids", said.append)
    with signals.forwarded():
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
    assert said == ["stopping: this step is finished and saved; once more stops at once", "stopping at once"]


def test_packed_rows_are_said_to_be_packed_anew(tmp_path):
    said = []
    env = dict(os.environ) | {
        "PYTHONPATH": f"{SOURCE}{os.pathsep}{HERE.parent / 'helpers'}",
        "STUB": json.dumps({"steps": 12, "oom_at": 2, "fits": 2}),
    }
    plan = make_plan(tmp_path, packs_anew=True)
    assert supervise(plan, say=said.append, command=stub_command, env=env) == 0
    assert "a step holds other samples than before" in said[1]


def test_a_model_that_does_not_fit_has_no_batch_to_halve(tmp_path):
    assert next_attempt(make_plan(tmp_path), "load", None) is None


def test_a_restart_gets_a_prediction_of_its_own(tmp_path):
    first, second = (
        PredictedMemory(peak_allocated_bytes=size, peak_reserved_bytes=size, outside_bytes=0, limit_bytes=None)
        for size in (2, 1)
    )
    asked = []
    env = dict(os.environ) | {
        "PYTHONPATH": f"{SOURCE}{os.pathsep}{HERE.parent / 'helpers'}",
        "STUB": json.dumps({"steps": 3, "fits": 2, "oom_at": 2}),
    }
    supervise(
        make_plan(tmp_path, predicted=first),
        say=lambda _: None,
        predict=lambda plan: asked.append(plan.micro_batch_size) or second,
        command=stub_command,
        env=env,
    )
    assert asked == [2]
    assert read_plan(tmp_path / "vramwise.json").predicted == second


def test_an_eval_at_batch_1_leaves_nothing_to_halve(tmp_path):
    assert next_attempt(make_plan(tmp_path, eval_batch_size=1), "eval", None) is None
    assert next_attempt(make_plan(tmp_path, eval_batch_size=None), "eval", None) is None
