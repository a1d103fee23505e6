"""The longest samples of a run: `python -m vramwise.training.worker.longest`, with a plan on standard input.

A separate process, because tokenizing imports torch and the parent does not. `longest_samples` is the parent's side,
`main` the child's: it prints the longest training and evaluation sample in tokens, as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from vramwise.errors import VramwiseError
from vramwise.training.plan import TrainPlan


def longest_samples(plan: TrainPlan) -> tuple[int, int | None]:
    """Return the longest training and evaluation sample (None: nothing is held out), as the engine will see them."""
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=plan.to_json(),
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, **plan.environment},
        check=False,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise VramwiseError(lines[-1].removeprefix("error: "))
    train, evaluation = json.loads(done.stdout.splitlines()[-1])
    return train, evaluation


def main() -> int:
    """Run the child; return the exit code."""
    from vramwise.training.worker.data import load_data
    from vramwise.training.worker.main import run_of
    from vramwise.training.worker.model import load_tokenizer

    try:
        plan = TrainPlan.from_json(sys.stdin.read())
        run = run_of(plan)
        data = load_data(run, load_tokenizer(run, plan), seed=plan.seed)
    except VramwiseError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    found = [max(map(len, data.train)), max(map(len, data.evaluation), default=None)]
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
