"""Runs of the real Unsloth on a card, some side by side, and what they took: one JSON line each.

    python unsloth_runs.py OUT_DIR --cases cases.json [--jobs 4] [--timed] [--seconds 560]

Each case is `name: [model, arguments of from_pretrained, of get_peft_model (null: none), of SFTConfig]`; models are
random weights of real shapes (`models.json`), data is made up (`unsloth_cases.py`). Environment: SITE names a
site-packages folder with Unsloth and what it needs. Compiled kernels are shared by all runs.

With `--timed` up to eight runs get ready side by side, up to a few steps. Then each has the card for itself, in the
order of the cases; runs that are not ready by then are halted until the others are done.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from random_models import make_models
from unsloth_cases import tokenizer_words
from unsloth_child import WORK

HERE = Path(__file__).resolve().parent
SITE = os.environ.get("SITE", str(WORK / "site"))
MODELS = json.loads((HERE / "models.json").read_text())
MOST_AT_ONCE = 8  # more brought the machine down
LONGEST_RUN_S, LONGEST_GEMMA_S, LONGEST_TURN_S = 240, 420, 40


def environment() -> dict[str, str]:
    """What a run sees."""
    return {
        **os.environ,
        "PYTHONPATH": f"{SITE}:{HERE}",
        "HF_HUB_OFFLINE": "1",
        "UNSLOTH_DISABLE_STATISTICS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "CUDA_VISIBLE_DEVICES": "0",
        "TRITON_CACHE_DIR": str(WORK / "cache" / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(WORK / "cache" / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "2",
        "OMP_NUM_THREADS": "2",
    }


class Run:
    """A case that was started, in a folder of its own: Unsloth writes compiled modules to where it is."""

    def __init__(self, name: str, case: list[Any], cases: Path, timed: bool) -> None:
        """Start the process."""
        self.name, self.case, self.since, self.halted = name, case, time.time(), False
        self.folder = WORK / "runs" / name
        self.folder.mkdir(parents=True, exist_ok=True)
        for sign in ("ready", "go", "timed", "json"):
            (WORK / "runs" / f"{name}.{sign}").unlink(missing_ok=True)  # of a run before
        command = [sys.executable, str(HERE / "unsloth_child.py"), str(cases.resolve()), name]
        log = (self.folder / "log").open("w")
        more = ["--timed"] if timed else []
        self.process = subprocess.Popen([*command, *more], env=environment(), stdout=log, stderr=log, cwd=self.folder)

    def said(self, word: str) -> bool:
        """Whether the run left this sign."""
        return (WORK / "runs" / f"{self.name}.{word}").exists()

    def ended(self) -> bool:
        """Whether the process is gone."""
        return self.process.poll() is not None

    def signal(self, number: int) -> None:
        """Halt the process, or let it go on."""
        if not self.ended():
            self.process.send_signal(number)
            self.halted = number == signal.SIGSTOP

    def give_turn(self) -> None:
        """Let the run have the card, until it says that it is done."""
        (WORK / "runs" / f"{self.name}.go").touch()
        since = time.time()
        while not self.ended() and not self.said("timed") and time.time() - since < LONGEST_TURN_S:
            time.sleep(0.05)

    def finish(self, out: Path) -> None:
        """End the process and append what it left to a file."""
        if not self.ended():
            self.process.kill()
            self.process.wait()
        left = WORK / "runs" / f"{self.name}.json"
        row = json.loads(left.read_text()) if left.exists() else {"name": self.name, "case": self.case, "rc": -9}
        row["model"] = MODELS[self.case[0]]
        if row["rc"]:
            row["tail"] = (self.folder / "log").read_text(errors="replace")[-1500:]
        with out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        for trace in (WORK / "runs").glob(f"{self.name}.trace.json.gz"):
            shutil.move(trace, out.parent / trace.name)
        peaks = [[round(step[0]), round(step[2])] for step in row.get("steps", [])[-2:]]
        took = f"{time.time() - self.since:.0f} s"
        print(self.name, row["rc"], peaks, row.get("clock"), row.get("error", "")[-300:], took, flush=True)


def prepare(names: list[str]) -> subprocess.Popen[bytes]:
    """Folders, and a process that makes the models in this order; runs wait for theirs."""
    for folder in ("runs", "cache", "models"):
        (WORK / folder).mkdir(parents=True, exist_ok=True)
    code = f"import unsloth_runs; unsloth_runs.make({names!r})"
    return subprocess.Popen([sys.executable, "-c", code], env=environment(), cwd=HERE)


def make(names: list[str]) -> None:
    """Model folders with random weights."""
    for name in names:
        make_models(WORK / "models", {name: MODELS[name]}, tokenizer_words())
        (WORK / "models" / f"{name}.made").touch()


def side_by_side(cases: dict[str, list[Any]], arguments: argparse.Namespace, until: float) -> None:
    """Run the cases, as many at once as allowed, until done or out of time."""
    todo, running = list(cases), []
    while todo or running:
        late = time.time() > until - 60
        while todo and not late and len(running) < min(arguments.jobs, MOST_AT_ONCE):
            running.append(Run(todo[0], cases[todo[0]], arguments.cases, timed=False))
            todo.pop(0)
        if late and todo:
            print("out of time, not run:", " ".join(todo), flush=True)
            todo.clear()
        time.sleep(0.3)
        for run in list(running):
            limit = LONGEST_GEMMA_S if "gemma" in run.case[0] else LONGEST_RUN_S
            if run.ended() or time.time() > min(run.since + limit, until):
                running.remove(run)
                run.finish(arguments.out / f"{arguments.name}.jsonl")


def in_turns(cases: dict[str, list[Any]], arguments: argparse.Namespace, until: float) -> None:
    """Time the runs, as many at once getting ready as allowed."""
    named = list(cases.items())
    groups = [named[start : start + MOST_AT_ONCE] for start in range(0, len(named), MOST_AT_ONCE)]
    for number, group in enumerate(groups):
        now = time.time()
        time_group(dict(group), arguments, now + (until - now) / (len(groups) - number))


def time_group(cases: dict[str, list[Any]], arguments: argparse.Namespace, until: float) -> None:
    """Get all runs ready, then time one after the other; then those that were late."""
    runs = [Run(name, case, arguments.cases, timed=True) for name, case in cases.items()]
    each = 8.0
    for run in runs:
        while not run.ended() and not run.said("ready") and time.time() < until - each * len(runs):
            time.sleep(0.2)
    ready = [run for run in runs if run.said("ready")]
    print("ready:", len(ready), "of", len(runs), flush=True)
    late = [run for run in runs if run not in ready]
    for run in late:
        run.signal(signal.SIGSTOP)
    for run in ready:
        if time.time() < until - each:
            run.give_turn()
    for run in late:
        run.signal(signal.SIGCONT)
        while not run.ended() and not run.said("ready") and time.time() < until - each:
            time.sleep(0.2)
        if run.said("ready") and time.time() < until - each:
            run.give_turn()
    for run in runs:
        while not run.ended() and run.said("timed") and time.time() < until:
            time.sleep(0.2)
        run.finish(arguments.out / f"{arguments.name}.jsonl")


def main() -> None:
    """Run the cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--cases", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=560)
    parser.add_argument("--name", default="unsloth", help="of the file with a line a run")
    parser.add_argument("--timed", action="store_true", help="one run has the card at a time; its steps are timed")
    arguments = parser.parse_args()
    until = time.time() + arguments.seconds
    cases = json.loads(arguments.cases.read_text())
    making = prepare(list(dict.fromkeys(case[0] for case in cases.values())))
    (in_turns if arguments.timed else side_by_side)(cases, arguments, until)
    making.kill()


if __name__ == "__main__":
    main()
