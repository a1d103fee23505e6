"""Predicted against measured: one line a run, then medians and worst cases.

For each measured run: allocated and reserved peaks of the ghost run through the allocator simulation, the error against
the measured ones, and, where the recorded allocator events are at hand, how much of the last step's allocations of 1
MiB and more matches the recording in order and size.

    python tests/measured/accuracy.py [FILE.jsonl | --all] [--only NAME]
    python tests/measured/accuracy.py --record
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from difflib import SequenceMatcher
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parents[2] / "bench"
sys.path[:0] = [str(Path(__file__).parent), str(HERE), str(HERE.parent / "src")]

from record import Entry, write  # noqa: E402
from truth import BUNDLED, Case, cases  # noqa: E402
from vramwise.allocator.repeats import unroll  # noqa: E402
from vramwise.allocator.run import simulate  # noqa: E402
from vramwise.allocator.settings import parse_settings  # noqa: E402
from vramwise.ghost.loops.sft import ghost_run  # noqa: E402
from vramwise.timeline import Action, MemoryReport, Timeline  # noqa: E402
from vramwise.variants.features import features  # noqa: E402

MIB = 1024**2
# A step begins where its batch arrives: the first of three equal requests of int64 tokens.
BIG = MIB


def predict(case: Case) -> Timeline:
    """The ghost run of a case."""
    timeline, _ = ghost_run(
        case.run,
        case.model,
        widths=case.widths,
        eval_widths=case.eval_widths,
        steps=case.steps,
        hardware=case.hardware,
    )
    return timeline


def after_load(timeline: Timeline) -> int:
    """Where loading ends: the first event of the first step."""
    for index, event in enumerate(timeline.events):
        if event.action == Action.PHASE and timeline.phases[event.tag].name != "load":
            return index
    return 0


def last_step(timeline: Timeline) -> list[int]:
    """The requests of 1 MiB and more in the last training step, evaluations left out."""
    timeline = unroll(timeline)
    steps = [phase.step for phase in timeline.phases]
    last = max(steps)
    inside = False
    sizes = []
    for event in timeline.events:
        if event.action == Action.PHASE:
            phase = timeline.phases[event.tag]
            inside = phase.step == last and phase.name != "eval"
        elif inside and event.action == Action.ALLOC and event.size_bytes >= BIG:
            sizes.append(event.size_bytes)
    return sizes


def recorded_sizes(path: Path) -> list[int]:
    """All requests of 1 MiB and more of a recording."""
    with gzip.open(path) as file:
        events = json.load(file)["events"]
    return [event[2] for event in events if event[0] == "alloc" and event[2] >= BIG]


def alignment(predicted: list[int], recorded: list[int]) -> float:
    """The share of the predicted step's requests found, in order, where the recording's last step is."""
    window = recorded[-len(predicted) - 64 :] if predicted else []
    if window[-len(predicted) :] == predicted:
        return 1.0
    matcher = SequenceMatcher(None, window, predicted, autojunk=False)
    return sum(block.size for block in matcher.get_matching_blocks()) / max(len(predicted), 1)


def peaks_after_load(report: MemoryReport) -> tuple[float, float]:
    """Allocated and reserved peaks in MiB, loading left out: the measured ones were taken so."""
    phases = [phase for phase in report.phases if phase.phase != "load"]
    return (
        max(phase.peak_allocated_bytes for phase in phases) / MIB,
        max(phase.peak_reserved_bytes for phase in phases) / MIB,
    )


def line(case: Case) -> tuple[float, float, str]:
    """(allocated error, reserved error, the line to print)."""
    started = time.process_time()
    timeline = predict(case)
    ghost_s = time.process_time() - started
    started = time.process_time()
    report = simulate(
        timeline, parse_settings(case.run.allocator.settings, case.run.target.torch), torch=case.run.target.torch
    )
    allocator_s = time.process_time() - started
    allocated, reserved = peaks_after_load(report)
    measured = case.measured
    allocated_error = allocated / measured["peak_allocated_mib"] - 1
    reserved_error = reserved / measured["peak_reserved_mib"] - 1
    aligned = "     —"
    if case.trace_path is not None and not case.run.evaluation.evaluates:
        aligned = f"{100 * alignment(last_step(timeline), recorded_sizes(case.trace_path)):6.1f}"
    text = (
        f"{case.name:42s} {allocated:9.1f} {measured['peak_allocated_mib']:9.1f} {100 * allocated_error:+6.2f} "
        f"{reserved:9.1f} {measured['peak_reserved_mib']:9.1f} {100 * reserved_error:+6.2f} {aligned} "
        f"{1000 * ghost_s:6.0f} {1000 * allocator_s:6.0f}"
    )
    return allocated_error, reserved_error, text


def recorded() -> list[Case]:
    """Every measured run that lies beside the tests."""
    return [case for path in sorted(BUNDLED.parent.glob("h200-*.jsonl")) for case in cases(path)]


def summary(errors: list[tuple[float, float]]) -> dict[str, float]:
    """Medians and worst cases in per cent."""
    allocated, reserved = ([100 * abs(pair[index]) for pair in errors] for index in (0, 1))
    return {
        "allocated_median": round(median(allocated), 2),
        "allocated_worst": round(max(allocated), 2),
        "reserved_median": round(median(reserved), 2),
        "reserved_worst": round(max(reserved), 2),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--all", action="store_true", help="every run that lies beside the tests")
    parser.add_argument("--record", action="store_true", help="of all of them; writes the errors into the package")
    arguments = parser.parse_args()
    found = recorded() if arguments.all or arguments.record else cases(arguments.file)
    chosen = found if arguments.record else [case for case in found if arguments.only in case.name]
    if not chosen:
        sys.exit(f"no run's name contains '{arguments.only}'")
    print(
        f"{'run (MiB)':42s} {'allocated':>9s} {'measured':>9s} {'%':>6s} {'reserved':>9s} {'measured':>9s} {'%':>6s} "
        f"{'align%':>6s} {'ghost':>6s} {'alloc':>6s}"
    )
    errors, entries = [], []
    for case in chosen:
        allocated, reserved, text = line(case)
        errors.append((allocated, reserved))
        entries.append(
            Entry(name=case.name, features=features(case.run, case.model), allocated=allocated, reserved=reserved)
        )
        print(text, flush=True)
    result = summary(errors)
    for name in ("allocated", "reserved"):
        print(f"{name}: median {result[f'{name}_median']} %, worst {result[f'{name}_worst']} % of {len(errors)} runs")
    if arguments.record:
        write(entries, "transformers")


if __name__ == "__main__":
    main()
