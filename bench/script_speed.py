"""Predicted against measured step times of training scripts: transformers' Trainer and TRL.

    python bench/script_speed.py MEASURED.jsonl ... [--parts]     # a line a run, then errors and orders

Cases are drawn by `card/draw_speed.py` and run by `card/timed_runs.py`. A script is predicted as it is.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "measured"), str(HERE.parent / "src")]

from host_alone import alone  # noqa: E402
from speed import Case, report  # noqa: E402
from vramwise.facts.rates import efficiency, rates_of  # noqa: E402
from vramwise.ghost.loops.batches import BatchShape  # noqa: E402
from vramwise.opening.options import Options  # noqa: E402
from vramwise.opening.subject import Subject, open_subject  # noqa: E402
from vramwise.variants.speed.step import priced  # noqa: E402
from vramwise.variants.speed.timed_step import list_step  # noqa: E402

MODELS = json.loads((HERE / "card" / "models.json").read_text())
VERSIONS = ("transformers==5.20.1", "trl==1.14.1", "peft==0.21.2", "accelerate==1.15.0", "torch==2.11.0")


def subject_of(case: dict[str, Any], folder: Path) -> Subject:
    """The script beside its model."""
    model = folder / case["model"]
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps({**MODELS[case["model"]], "dtype": "bfloat16"}))
    (folder / "train.py").write_text(case["script"])
    return open_subject(folder / "train.py", Options(gpu="h200", versions=VERSIONS))


def case_of(name: str, case: dict[str, Any]) -> Case:
    """The run with rows that are all as long as the case says."""
    with tempfile.TemporaryDirectory() as folder:
        subject = subject_of(case, Path(folder))
    run, model = subject.run, subject.model
    rates = rates_of(run.target.gpu)
    assert model is not None
    assert rates is not None
    shape = BatchShape(rows=run.batch.micro_batch_size, width=case["length"], padded=False)
    work = ((list_step(run, model, shape), 1),)
    seconds = median(case["step_seconds"]) if case.get("step_seconds") else 1.0
    kernels = tuple((label, count, us) for label, count, us in case.get("kernels", ()))
    foretold = case.get("foretold", {}).get("step_seconds")
    workload = case["workload"]
    seen = alone(run, model, case.get("host", ()))
    return Case(name, workload, rates, run.batch.gradient_accumulation_steps, work, seconds, kernels, foretold, seen)


def measured(files: list[Path]) -> list[Case]:
    """The runs that were timed."""
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return [case_of(row["name"], row) for row in rows if row.get("step_seconds")]


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--parts", action="store_true", help="what each prediction is made of")
    arguments = parser.parse_args()
    found = measured(arguments.files)
    for case in found if arguments.parts else ():
        parts = priced(case.work[0][0], case.micro_steps, case.rates, efficiency()).parts
        print(case.name, {name: round(seconds, 4) for name, seconds in parts.items()})
    report(found, efficiency())


if __name__ == "__main__":
    main()
