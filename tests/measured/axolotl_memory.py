"""Predicted against measured, for runs of the real Axolotl: loading, allocated and reserved, one line a run.

Each measured run is a config, a model's `config.json` and what came of them on a card; it is predicted the way a user
would: the file, the card, the versions, the lengths of the data.

    python tests/measured/axolotl_memory.py [FILE.jsonl ...] [--only NAME] [--json]
    python tests/measured/axolotl_memory.py --record
    python tests/measured/axolotl_memory.py --foretell CASES.json     # before they are run: writes the predictions into the file

Cases for a card (`card/axolotl_runs.py`) are foretold where the config alone decides the shapes of batches.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parents[2] / "bench"
sys.path[:0] = [str(Path(__file__).parent), str(HERE), str(HERE.parent / "src")]

from record import Entry, write  # noqa: E402
from trainer_lengths import recorded  # noqa: E402
from vramwise.errors import VramwiseError  # noqa: E402
from vramwise.opening.options import Options  # noqa: E402
from vramwise.opening.subject import Subject, open_subject  # noqa: E402
from vramwise.variants.bounds import unmodelled  # noqa: E402
from vramwise.variants.features import features  # noqa: E402
from vramwise.variants.lengths import Lengths, parse_lengths  # noqa: E402
from vramwise.variants.prediction import Prediction  # noqa: E402

MIB = 1024**2
RUNS = HERE.parent / "tests" / "data" / "truth"
SHARED = HERE.parent.parent / "shared" / "truth" / "axolotl-dev.jsonl"
# Tokens of a prompt in the GRPO runs, whose batches were not recorded: 120 words of the made-up text.
GRPO_PROMPT = 248


@dataclass(frozen=True, slots=True)
class Figures:
    """Peaks in MiB: of loading, and of everything after it."""

    load_allocated: float
    load_reserved: float
    allocated: float
    reserved: float


def measured(row: dict[str, Any]) -> Figures:
    """What the card showed. Axolotl resets the peaks at times: the highest of all readings counts."""
    readings = [*row["steps"], *row.get("eval_peaks", ())]
    return Figures(
        row["load_peak_allocated_mib"],
        row["load_peak_reserved_mib"],
        max([reading[0] for reading in readings] + [row.get("overall_allocated_mib", 0)]),
        max([reading[2] for reading in readings] + [row.get("overall_reserved_mib", 0)]),
    )


def subject_of(row: dict[str, Any], folder: Path) -> Subject:
    """The run as a user would hand it in: a file beside its model."""
    model = folder / "MODEL"
    model.mkdir(exist_ok=True)
    shape = {key: value for key, value in row["model"].items() if key != "outlier_columns"}
    made_up = "outlier_columns" not in row["model"]  # else its outliers are as few as those of trained weights
    (model / "config.json").write_text(json.dumps({**shape, "dtype": "bfloat16", "random_weights": made_up}))
    config = {**row["config"], "base_model": str(model), "output_dir": "out"}
    (folder / "config.yml").write_text(json.dumps(config))
    versions = (f"axolotl=={row['axolotl']}", f"torch=={row['torch'].split('+')[0]}")
    options = Options(gpu="h200", versions=versions, alloc_conf=row["alloc_conf"])
    return open_subject(folder / "config.yml", options)


def lengths_of(batches: list[dict[str, Any]], config: dict[str, Any]) -> Lengths | None:
    """Sample lengths that give the batches that came: one row as wide as the batch, the others shorter.

    Where rows are filled up to the sequence length, a batch has no row that wide, unless it is known not to be padded.
    Newer records have the tokens of every row.
    """
    if found := _counted(batches, config):
        return found
    if config.get("rl") == "grpo":
        return parse_lengths("\n".join([str(GRPO_PROMPT)] * len(batches)), "measured prompts")
    if "chosen_input_ids" in (batches[0] if batches else {}):
        sides = [(batch["chosen_input_ids"], batch["rejected_input_ids"]) for batch in batches]
        lines = [f"[{chosen[1]}, {rejected[1]}]" for chosen, rejected in sides for _ in range(chosen[0])]
        return parse_lengths("\n".join(lines), "measured batches")
    filled = config.get("pad_to_sequence_len")
    shapes = [
        (*batch["input_ids"], 9 if filled and batch.get("padded", True) else 0)
        for batch in batches
        if "input_ids" in batch
    ]
    if not shapes or config.get("sample_packing"):
        return None
    pairs = config.get("rl") in ("dpo", "ipo", "orpo", "simpo") or config.get("reward_model")
    lines = []
    for rows, width, missing in shapes:
        samples = rows // 2 if pairs else rows
        lines += [f"[{width}, {width - 9}]" if pairs else str(width - missing)]
        lines += [f"[{width - 9}, {width - 9}]" if pairs else str(width - 9)] * (samples - 1)
    return parse_lengths("\n".join(lines), "measured batches")


def _counted(batches: list[dict[str, Any]], config: dict[str, Any]) -> Lengths | None:
    """The rows that came, where the tokens of each were counted."""
    if not batches or config.get("sample_packing") or not all("tokens" in batch for batch in batches):
        return None
    reward = config.get("reward_model") and "reward"
    method = reward or {None: "sft", "kto": "kto"}.get(config.get("rl"), "dpo")
    return recorded(batches, {"config": {}, "method": method})


def one_evaluation(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The batches of the first: all evaluations see the same samples, and the last batch may be smaller."""
    batches: list[dict[str, Any]] = row["eval_widths"]
    evaluations = row.get("evals", 1)
    count = evaluations if isinstance(evaluations, int) else len(evaluations)
    return batches[: len(batches) // max(1, count)]


def predicted(row: dict[str, Any]) -> tuple[Figures, dict[str, str]]:
    """The same figures, foretold; and the features of the run, {} if it gets a range."""
    with tempfile.TemporaryDirectory() as folder:
        subject = subject_of(row, Path(folder))
        prediction = subject.prediction(
            lengths=lengths_of(row["widths"], row["config"]),
            eval_lengths=lengths_of(one_evaluation(row), {}),
            steps=len(row["steps"]),
        )
    exact = next(unmodelled(prediction.run, prediction.model), None) is None
    return figures_of(prediction), features(prediction.run, prediction.model) if exact else {}


def figures_of(prediction: Prediction) -> Figures:
    """The peaks of a prediction."""
    phases = prediction.needs.phases
    load = [phase for phase in phases if phase.phase == "load"]
    rest = [phase for phase in phases if phase.phase != "load"]
    return Figures(
        max(phase.peak_allocated_bytes for phase in load) / MIB,
        max(phase.peak_reserved_bytes for phase in load) / MIB,
        max(phase.peak_allocated_bytes for phase in rest) / MIB,
        max(phase.peak_reserved_bytes for phase in rest) / MIB,
    )


def foretell(file: Path) -> None:
    """Write what is predicted of cases into their file."""
    sys.path.append(str(HERE / "card"))
    from axolotl_runs import MODELS, config_of

    cases = json.loads(file.read_text())
    for name, case in cases.items():
        config = case["config"]
        if case.get("trainer") or config.get("rl") or not config.get("pad_to_sequence_len"):
            continue
        row = {"model": MODELS[case["model"]], "config": config_of(name, case), "axolotl": case["axolotl"]}
        row |= {"torch": "2.11.0", "alloc_conf": case["alloc"], "widths": [], "eval_widths": []}
        guess, found = predicted({**row, "steps": range(row["config"]["max_steps"])})
        with tempfile.TemporaryDirectory() as folder:
            speed = subject_of(row, Path(folder)).speed()
        case["foretold"] = {
            "load_reserved_mib": round(guess.load_reserved),
            "allocated_mib": round(guess.allocated, 1),
            "reserved_mib": round(guess.reserved),
            "a_range": not found,
            "step_seconds": speed and round(speed.step_seconds, 4),
        }
        print(name, case["foretold"], flush=True)
    file.write_text(json.dumps(cases, indent=1) + "\n")


def rows(files: list[Path]) -> list[dict[str, Any]]:
    """The runs that reached their end."""
    files = files or sorted(RUNS.glob("axolotl-*.jsonl")) or [SHARED]
    found = [json.loads(line) for file in files for line in file.read_text().splitlines() if line.strip()]
    return [row for row in found if row.get("steps") and not row["rc"]]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--json", action="store_true", help="one object a run instead of the table")
    parser.add_argument("--record", action="store_true", help="of all of them; writes the errors into the package")
    parser.add_argument("--foretell", type=Path, help="a file of cases that are to be run")
    arguments = parser.parse_args()
    if arguments.foretell:
        foretell(arguments.foretell)
        return
    errors: list[tuple[float, float, float]] = []
    entries: list[Entry] = []
    for row in rows([] if arguments.record else arguments.files):
        if arguments.only not in row["name"]:
            continue
        label = f"{row['name']} {row['axolotl']}"
        try:
            (guess, found), truth = predicted(row), measured(row)
        except VramwiseError as error:
            print(f"{label:50s} not predicted: {error}")
            continue
        load = guess.load_reserved / truth.load_reserved - 1
        allocated = guess.allocated / truth.allocated - 1
        reserved = guess.reserved / truth.reserved - 1
        errors.append((load, allocated, reserved))
        if found:
            entries.append(Entry(name=label, features=found, allocated=allocated, reserved=reserved, load=load))
        if arguments.json:
            print(json.dumps({"name": row["name"], "axolotl": row["axolotl"], "errors": errors[-1]}))
            continue
        print(
            f"{label:50s} load {guess.load_reserved:7.0f} {truth.load_reserved:7.0f} {100 * load:+6.1f} | "
            f"allocated {guess.allocated:8.1f} {truth.allocated:8.1f} {100 * allocated:+6.2f} | "
            f"reserved {guess.reserved:7.0f} {truth.reserved:7.0f} {100 * reserved:+6.2f}",
            flush=True,
        )
    if not errors:
        return
    for name, column in zip(("load", "allocated", "reserved"), zip(*errors, strict=True), strict=True):
        off = [100 * abs(error) for error in column]
        print(f"{name}: median {median(off):.2f} %, worst {max(off):.2f} % of {len(off)} runs")
    if arguments.record:
        from rank_memory import entries_of  # it builds on this module

        write([*entries, *entries_of("axolotl")], "axolotl")


if __name__ == "__main__":
    main()
