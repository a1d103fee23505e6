"""Runs `make test` again and again, each time from a fresh clone, and writes down the CPU and wall time of each.

Every second run has busy processes beside it, which take processor time that the tests would have. A run's CPU time
is that of all its processes, install included. Exit code: 1 where a run fails. Results are appended as they come.

    python bench/suite_runs.py [--runs 10] [--busy 2] [--out bench/results/suite_runs.md] [--keep-logs FOLDER]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEAD = """# Runs of `make test` from fresh clones

`python bench/suite_runs.py`: install, lint, types and tests. CPU time is that of all processes of a run.

| commit | run | beside it | result | CPU min | wall min | tests |
|---|---:|---|---|---:|---:|---|
"""
_SUMMARY = re.compile(r"^=*\s*((?:\d+ [a-z]+(?:, )?)+) in [\d.]+s", re.MULTILINE)


@dataclass(frozen=True)
class Run:
    """One run: whether it passed, what it took, and what pytest counted."""

    passed: bool
    cpu_seconds: float
    wall_seconds: float
    counted: str


def main() -> int:
    """Make the runs that are asked for."""
    asked = _arguments()
    commit = _git("rev-parse", "--short", "HEAD")
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    if not asked.out.exists():
        asked.out.write_text(HEAD, encoding="utf-8")
    failed = 0
    for number in range(1, asked.runs + 1):
        busy = asked.busy if number % 2 == 0 else 0
        run = one_run(busy, asked.keep_logs and asked.keep_logs / f"{commit}-{number}.log")
        failed += not run.passed
        with asked.out.open("a", encoding="utf-8") as out:
            out.write(_row(commit, number, busy, run))
        print(_row(commit, number, busy, run), end="", flush=True)
    return 1 if failed else 0


def one_run(busy: int, log: Path | None) -> Run:
    """Clone what is committed, run `make test` there, and delete the clone."""
    with tempfile.TemporaryDirectory(prefix="suite-") as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with busy_processes(busy):
            cpu, start = _children_seconds(), time.monotonic()
            done = subprocess.run(
                ["make", "test"],
                cwd=clone,
                env=environment,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
            wall, cpu = time.monotonic() - start, _children_seconds() - cpu
    if log:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(done.stdout, encoding="utf-8")
    counted = _SUMMARY.findall(done.stdout)
    return Run(done.returncode == 0, cpu, wall, counted[-1] if counted else done.stdout.strip()[-80:])


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """So many processes that compute without end. They are waited for afterwards, so theirs is not a run's time."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def _children_seconds() -> float:
    """Processor time of all processes that were started here and have been waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _row(commit: str, number: int, busy: int, run: Run) -> str:
    beside = f"{busy} busy processes" if busy else "nothing"
    result = "passed" if run.passed else "FAILED"
    minutes = f"{run.cpu_seconds / 60:.1f} | {run.wall_seconds / 60:.1f}"
    return f"| {commit} | {number} | {beside} | {result} | {minutes} | {run.counted.replace('|', '/')} |\n"


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--busy", type=int, default=2, help="busy processes beside every second run")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "suite_runs.md")
    parser.add_argument("--keep-logs", type=Path, metavar="FOLDER", help="keep what each run printed")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
