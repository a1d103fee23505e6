"""Predicted against measured step times of Unsloth, and whether the order of the variants is right.

    python tests/measured/unsloth_speed.py [MEASURED.jsonl] [--kernels NAME]
    python tests/measured/unsloth_speed.py --left-out # each group of runs, calibrated without it
    python tests/measured/unsloth_speed.py --fit      # writes Unsloth's own costs to src/vramwise/facts/efficiency.json

Each measured run is a case of `card/unsloth_runs.py --timed`: seconds of steps, shapes of the batches, the kernels of
one step. Variants are compared by tokens a second, since packed ones train on more tokens a step. Rates of kernels are
those of all trainers but for `OWN`, which Unsloth has written itself; what its host takes is calibrated too.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parents[2] / "bench"
sys.path[:0] = [str(Path(__file__).parent), str(HERE), str(HERE.parent / "src")]

from speed import Case, errors_of, kendall, regret  # noqa: E402
from speed_fit import (  # noqa: E402
    ON_HOST,
    TARGET,
    family_of,
    least_squares,
    merged,
    off_by_family,
    off_by_step,
    rested,
    work_by_kind,
)
from unsloth_memory import shapes_of, subject_of  # noqa: E402
from vramwise.facts.rates import Efficiency, efficiency, rates_of  # noqa: E402
from vramwise.variants.speed.queues import on_card  # noqa: E402
from vramwise.variants.speed.timed_step import list_step  # noqa: E402

MEASURED = HERE.parent / "tests" / "data" / "truth" / "unsloth_speed.jsonl"
OWN = ("triton", "dequantise")
# Of a run's batches, so many are priced: evenly taken, all steps are of the same kind.
_PRICED = 16


def steps_of(row: dict[str, Any]) -> tuple[list[dict[str, Any]], float, int]:
    """The batches of the timed steps, the seconds of one of them, and micro-steps a step."""
    each = row["case"][3].get("gradient_accumulation_steps", 2)
    first = len(row.get("first_seconds", ())) * each
    batches = row["widths"][first : first + each * len(row["step_seconds"])]
    return batches, median(row["step_seconds"]), each


def case_of(row: dict[str, Any], *, profiled: bool = False) -> Case:
    """A measured run, with the work of its timed steps, or of the one whose kernels were counted."""
    with tempfile.TemporaryDirectory() as folder:
        subject = subject_of(row, Path(folder))
    rates = rates_of(subject.target.gpu)
    assert subject.model is not None
    assert rates is not None
    batches, seconds, each = steps_of(row)
    batches = row["widths"][-each:] if profiled else batches
    shapes = shapes_of(batches[:: max(1, len(batches) // _PRICED)])
    work = [(list_step(subject.run, subject.model, one, one.width // (one.samples or 1)), 1) for one in shapes]
    kernels = tuple((name, count, us) for name, count, us in row.get("kernels", ()))
    return Case(row["name"], row["name"][:1], rates, each, tuple(work), seconds, kernels)


def tokens_a_step(row: dict[str, Any]) -> float:
    """How many tokens the timed steps had, on the average."""
    batches = steps_of(row)[0]
    return float(sum(batch["input_ids"][0] * batch["input_ids"][1] for batch in batches) / len(row["step_seconds"]))


def report(rows: Sequence[dict[str, Any]], cases: Sequence[Case], costs: Efficiency) -> None:
    """Print a line a run, then the errors and the order of the variants."""
    pairs, by_token = [], []
    for row, case in zip(rows, cases, strict=True):
        guess, truth, tokens = case.predicted(costs), case.seconds, tokens_a_step(row)
        pairs.append((guess, truth))
        by_token += [(guess / tokens, truth / tokens)] if case.workload == "s" else []
        on_the_card = sum(us for _, _, us in case.kernels) / 1e6
        figures = f"{guess:7.3f} s, measured {truth:7.3f} s {guess / truth - 1:+7.1%}"
        print(f"{case.name:32s} {figures}, {tokens / truth:7.0f} tokens a second, kernels {on_the_card:6.3f} s")
    summary(pairs, by_token)


def summary(pairs: Sequence[tuple[float, float]], by_token: Sequence[tuple[float, float]]) -> None:
    """Errors of all, and the order of the variants."""
    off = [abs(error) for error in errors_of(pairs)]
    print(f"{len(pairs)} runs: off by {median(off):.1%} (median), {max(off):.1%} at most")
    if len(by_token) > 1:
        slower = f"the fastest predicted is {regret(by_token):.1%} slower than the best"
        print(f"{len(by_token)} variants: order τ {kendall(by_token):.2f}, {slower}")


def families(case: Case, costs: Efficiency) -> None:
    """Print the seconds of each family of kernels, predicted and measured."""
    guess: dict[str, float] = {}
    for kernel, times in work_by_kind(case):
        family = merged(kernel.family)
        guess[family] = guess.get(family, 0.0) + times * on_card(kernel, case.rates, rested(costs))
    truth: dict[str, float] = {}
    for name, _, us in case.kernels:
        truth[family_of(name)] = truth.get(family_of(name), 0.0) + us / 1e6
    for family in sorted({*guess, *truth}, key=lambda family: -truth.get(family, 0.0)):
        print(f"    {family:20s} {guess.get(family, 0.0):8.4f} s, measured {truth.get(family, 0.0):8.4f} s")


def calibrated(rows: Sequence[dict[str, Any]], cases: Sequence[Case], costs: Efficiency) -> Efficiency:
    """The shares of Unsloth's own kernels by what a profiled step shows, then the host's costs by the step times."""
    counted = [case_of(row, profiled=True) for row in rows if row["kernels"]]
    costs = least_squares(costs, OWN, off_by_family(counted))
    return least_squares(costs, ON_HOST, off_by_step(cases, costs))


def left_out(rows: Sequence[dict[str, Any]], cases: Sequence[Case]) -> None:
    """The variants, and then the single runs, as they are predicted when the others alone are calibrated on."""
    for workload in ("s", "c"):
        of_others = [case for case in cases if case.workload != workload]
        costs = calibrated([row for row in rows if row["name"][:1] != workload], of_others, efficiency())
        own = [number for number, case in enumerate(cases) if case.workload == workload]
        report([rows[number] for number in own], [cases[number] for number in own], costs)


def write(costs: Efficiency, runs: int) -> None:
    """Into the package, as the trainer's own."""
    stored = json.loads(TARGET.read_text())
    values = {name: float(f"{value:.4g}") for name, value in asdict(costs).items() if name in (*OWN, *ON_HOST)}
    basis = f"efficiencies and host costs measured on an H200, of Unsloth's own code in {runs} runs of it"
    stored["trainers"]["unsloth"] = {"basis": basis, "values": values}
    TARGET.write_text(json.dumps(stored, indent=1) + "\n")


def main() -> None:
    """Print the table, or calibrate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=Path, nargs="?", default=MEASURED)
    parser.add_argument("--kernels", default="", help="print the measured kernels of this run, and its families")
    parser.add_argument("--fit", action="store_true", help="calibrate, and write the costs")
    parser.add_argument("--left-out", action="store_true", help="each group of runs, calibrated without it")
    arguments = parser.parse_args()
    rows = [json.loads(line) for line in arguments.measured.read_text().splitlines()]
    rows = [row for row in rows if row.get("step_seconds") and arguments.kernels in row["name"]]
    cases = [case_of(row) for row in rows]
    costs = efficiency("unsloth")
    if arguments.fit:
        costs = calibrated(rows, cases, efficiency())
        write(costs, len(cases))
    if arguments.left_out:
        return left_out(rows, cases)
    for case in cases if arguments.kernels else ():
        for name, count, us in case.kernels:
            print(f"{us:12.1f} us {count:6d} × {name}")
        families(case, costs)
    return report(rows, cases, costs)


if __name__ == "__main__":
    main()
