"""Predicted against measured step times, for runs of the real Axolotl; calibrates what kernels and hosts take.

Each measured run is a config, a model's `config.json`, and the seconds of single steps on a card; runs of one
`workload` do the same training in different ways. All are calibrated on by now. Those with `foretold` were predicted
before they were made: what was said of them then stays in the file, and is the error that users see.

    python tests/measured/speed.py [FILE.jsonl ...] [--only NAME]     # a line a run, then errors and orders
    python tests/measured/speed.py --left-out                         # each workload, calibrated without it
    python tests/measured/speed.py --fit                              # writes src/vramwise/facts/efficiency.json
    python tests/measured/speed.py --foretell CASES.json              # before they are run: writes predictions into the file
    python tests/measured/speed.py --record                           # writes src/vramwise/facts/speed_accuracy.json
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations
from math import exp
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parents[2] / "bench"
sys.path[:0] = [str(Path(__file__).parent), str(HERE), str(HERE.parent / "src")]

from axolotl_memory import lengths_of, subject_of  # noqa: E402
from host_alone import Alone, alone  # noqa: E402
from vramwise.errors import VramwiseError  # noqa: E402
from vramwise.facts.rates import Efficiency, Rates, efficiency, rates_of  # noqa: E402
from vramwise.variants.batches import train_shapes  # noqa: E402
from vramwise.variants.speed.step import priced, standing_for  # noqa: E402
from vramwise.variants.speed.timed_step import StepWork, list_step  # noqa: E402

RUNS = HERE.parent / "tests" / "data" / "truth"
RECORD = HERE.parent / "src" / "vramwise" / "facts" / "speed_accuracy.json"
EFFICIENCY = RECORD.with_name("efficiency.json")
CALIBRATION = "calibration"
HOST_COSTS = tuple(
    field.name for field in fields(Efficiency) if field.name.startswith("host_") and field.name != "host_update"
)
# Attention goes by the sample of an average token, not by the average sample: lengths of the made-up data are
# log-normal with a deviation of 0.9.
_LONGER = exp(0.9**2)


@dataclass(frozen=True, slots=True)
class Case:
    """A measured run: its work for each shape of its batches (with how often it came), and the median step."""

    name: str
    workload: str
    rates: Rates
    micro_steps: int
    work: tuple[tuple[StepWork, int], ...]
    seconds: float
    kernels: tuple[tuple[str, int, float], ...]  # of one step: name, launches, microseconds
    foretold: float | None = None  # seconds that were said before anything of the kind had been measured
    alone: tuple[Alone, ...] = ()  # forward and backward of a tiny batch, which show the host alone
    session: str = ""
    host: float = 1.0  # so many times what the host takes where nothing runs beside it

    def predicted(self, costs: Efficiency) -> float:
        """Seconds of a step."""
        if self.host != 1.0:
            slower = {name: getattr(costs, name) * self.host for name in HOST_COSTS}
            costs = replace(costs, **slower)
        total = sum(count for _, count in self.work)
        found = [(priced(work, self.micro_steps, self.rates, costs).seconds, count) for work, count in self.work]
        return sum(seconds * count for seconds, count in found) / total


def tokens_a_sample(rows: Iterable[dict[str, Any]]) -> int | None:
    """How long the sample of an average token is, from packed batches that say where samples begin."""
    tokens = samples = 0
    for row in rows:
        for batch in row.get("widths", ()):
            if "cu_seq_lens_q" in batch:
                tokens += batch["input_ids"][0] * batch["input_ids"][1]
                samples += batch["cu_seq_lens_q"][0] - 1
    return round(tokens / samples * _LONGER) if samples else None


def case_of(row: dict[str, Any], sample: int | None) -> Case:
    """The run as a user would hand it in, who knows how long samples are."""
    with tempfile.TemporaryDirectory() as folder:
        subject = subject_of(row, Path(folder))
    run, model = subject.run, subject.model
    rates = rates_of(run.target.gpu)
    assert model is not None
    assert rates is not None
    shapes = train_shapes(run, lengths_of(row["widths"], row["config"]))
    sample = None if sample is None else min(sample, run.shapes.sequence_len)
    if run.shapes.pad_to_sequence_len and run.shapes.packing_rows == "none":
        filled = None if sample is None or "flash" not in run.kernels.attn_implementation else sample
        shapes = [shape._replace(padded=True, tokens=filled and filled * shape.rows) for shape in shapes]
    work = tuple((list_step(run, model, shape, sample), count) for shape, count in standing_for(shapes))
    kernels = tuple((name, count, us) for name, count, us in row.get("kernels", ()))
    seconds = median(row["step_seconds"])
    name = f"{row['name']}"
    workload = row.get("workload", "")
    foretold = row.get("foretold", {}).get("step_seconds")
    seen = alone(run, model, row.get("host", ()))
    return Case(name, workload, rates, run.batch.gradient_accumulation_steps, work, seconds, kernels, foretold, seen)


def paces() -> dict[str, float]:
    """How many times longer the host took in a session than where nothing runs beside it."""
    found: dict[str, float] = json.loads(EFFICIENCY.read_text())["paces"]
    return found


def _case(row: dict[str, Any], sample: int | None) -> Case:
    if "script" in row:
        from script_speed import case_of as of_script  # it builds on this module

        return of_script(row["name"], row)
    if isinstance(row["model"], str):
        row = _whole(row)
    return case_of(row, sample)


def _whole(row: dict[str, Any]) -> dict[str, Any]:
    """A drawn case with everything that it leaves to be filled in on the card."""
    sys.path.append(str(HERE / "card"))
    from axolotl_runs import MODELS, config_of

    told = {"torch": "2.11.0", "alloc_conf": "expandable_segments:True"}
    return {**row, **told, "model": MODELS[row["model"]], "config": config_of(row["name"], row)}


def cases(files: Sequence[Path], only: str = "") -> list[Case]:
    """The runs that were timed."""
    found: list[Case] = []
    for file in files or sorted(RUNS.glob("speed-*.jsonl")):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        sample = tokens_a_sample(rows)
        host = paces().get(file.stem, 1.0)
        for row in rows:
            if row.get("step_seconds") and only in row["name"]:
                try:
                    found.append(replace(_case(row, sample), session=file.stem, host=host))
                except VramwiseError as error:
                    print(f"{row['name']}: not predicted: {error}")
    return found


def slowed(case: Case, by: Mapping[str, float]) -> Case:
    """The run with its session's pace."""
    return replace(case, host=by.get(case.session, case.host))


def kendall(pairs: Sequence[tuple[float, float]]) -> float:
    """Kendall's tau of predicted and measured."""
    signs = [(a[0] - b[0]) * (a[1] - b[1]) for a, b in combinations(pairs, 2)]
    agreeing, against = sum(sign > 0 for sign in signs), sum(sign < 0 for sign in signs)
    return (agreeing - against) / max(1, len(signs))


def regret(pairs: Sequence[tuple[float, float]]) -> float:
    """How much slower the one predicted fastest is than the one measured fastest, as a share."""
    return min(pairs)[1] / min(measured for _, measured in pairs) - 1


def errors_of(pairs: Iterable[tuple[float, float]]) -> list[float]:
    """Each as a share."""
    return [predicted / measured - 1 for predicted, measured in pairs]


def report(found: Sequence[Case], costs: Efficiency) -> None:
    """Print a line a run, and what it comes to in each workload."""
    by_workload: dict[str, list[tuple[float, float]]] = {}
    for case in sorted(found, key=lambda case: (case.workload, case.seconds)):
        predicted = case.predicted(costs)
        by_workload.setdefault(case.workload, []).append((predicted, case.seconds))
        off = 100 * (predicted / case.seconds - 1)
        print(f"{case.workload:16s} {case.name:44s} {predicted:8.3f} s, measured {case.seconds:8.3f} s {off:+7.1f} %")
    for workload, pairs in by_workload.items():
        _summary(workload, pairs)
    _summary("all", [pair for pairs in by_workload.values() for pair in pairs])


def _summary(name: str, pairs: Sequence[tuple[float, float]]) -> None:
    off = [100 * abs(error) for error in errors_of(pairs)]
    print(
        f"{name}: {len(pairs)} runs, error median {median(off):.1f} %, worst {max(off):.1f} %; "
        f"tau {kendall(pairs):.2f}, regret {100 * regret(pairs):.1f} %"
    )


def foretell(file: Path) -> None:
    """Write the predicted step of cases of `card/draw_speed.py` into their file."""
    known = [json.loads(line) for line in (RUNS / "speed-contact.jsonl").read_text().splitlines()]
    listed = json.loads(file.read_text())
    for name, case in listed.items():
        found = _case({"name": name, **case, "widths": [], "step_seconds": [1.0]}, tokens_a_sample(known))
        case["foretold"] = {"step_seconds": round(found.predicted(efficiency()), 4)}
        print(name, case["foretold"])
    file.write_text(json.dumps(listed, indent=1) + "\n")


def left_out(found: Sequence[Case], costs: Efficiency) -> None:
    """Each workload as it is predicted when the others alone are calibrated on."""
    from speed_fit import ALONE, fit

    costs = replace(costs, **ALONE)  # nothing of what the runs left out have taught
    for workload in sorted({case.workload for case in found} - {CALIBRATION}):
        others = [case for case in found if case.workload != workload]
        fitted, own = fit(others, costs)
        report([slowed(case, own) for case in found if case.workload == workload], fitted)


def record(found: Sequence[Case]) -> None:
    """Write the error of what was said of runs before they were made."""
    off = [100 * abs(case.foretold / case.seconds - 1) for case in found if case.foretold is not None]
    basis = "runs on one H200 that were predicted before they were measured"
    stored = {"basis": basis, "runs": len(off), "median": round(median(off), 1), "worst": round(max(off), 1)}
    RECORD.write_text(json.dumps(stored, indent=1) + "\n")


def main() -> None:
    """Print, calibrate or record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--fit", action="store_true", help="calibrate, and write what came out")
    parser.add_argument("--left-out", action="store_true", help="each workload, calibrated without it")
    parser.add_argument("--record", action="store_true", help="write the errors into the package")
    parser.add_argument("--foretell", type=Path, help="a file of cases that are to be run")
    arguments = parser.parse_args()
    if arguments.foretell:
        foretell(arguments.foretell)
        return
    found = cases(arguments.files, arguments.only)
    costs = efficiency()
    if arguments.left_out:
        left_out(found, costs)
        return
    if arguments.fit:
        from speed_fit import fit, write

        costs, own = fit(found, costs)
        write(costs, len(found), own)
        found = [slowed(case, own) for case in found]
    report(found, costs)
    if arguments.record:
        record(found)


if __name__ == "__main__":
    main()
