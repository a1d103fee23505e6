"""Predicted against measured, for runs of TRL and LLaMA-Factory: loading, allocated and reserved, one line a run.

    python tests/measured/trainer_memory.py [FILE.jsonl ...] [--only NAME]
    python tests/measured/trainer_memory.py --record

Each measured run is a config, a model's `config.json` and what came of them on a card; it is predicted the way a user
would: the file, the card, the versions, the lengths of the data.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parents[2] / "bench"
sys.path[:0] = [str(Path(__file__).parent), str(HERE), str(HERE.parent / "src")]

from axolotl_memory import MIB, Figures, measured, one_evaluation  # noqa: E402
from record import Entry, write  # noqa: E402
from trainer_lengths import PAIRS, are_drawn, recorded, trl_lengths  # noqa: E402
from vramwise.errors import VramwiseError  # noqa: E402
from vramwise.opening.options import Options  # noqa: E402
from vramwise.opening.subject import Subject, open_subject  # noqa: E402
from vramwise.variants.features import features  # noqa: E402
from vramwise.variants.lengths import Lengths, parse_lengths  # noqa: E402

RUNS = HERE.parent / "tests" / "data" / "truth"
_OLDER = ("peft==0.18.1", "trl==0.24.0", "accelerate==1.11.0")
_WITH_TRL = ("peft==0.21.2", "accelerate==1.15.0")
# by the first folder of a run's site
VERSIONS = {
    "trl": ("trl==1.16.0", "transformers==5.22.2", *_WITH_TRL),
    **{
        f"trl-{release.rpartition('.')[0]}": (f"trl=={release}", f"transformers=={beside}", *_WITH_TRL)
        for beside, releases in (
            ("5.16.1", ("1.9.0", "1.10.0", "1.11.0", "1.12.0")),
            ("5.20.1", ("1.13.0", "1.14.1", "1.15.0", "1.16.0")),
        )
        for release in releases
    },
    "llamafactory": ("llamafactory==0.9.5", "transformers==5.6.0", *_OLDER),
    "llamafactory457": ("llamafactory==0.9.5", "transformers==4.57.6", *_OLDER),
}
_SEEDS = (11, 1, 2, 3)


def subject_of(row: dict[str, Any], folder: Path) -> Subject:
    """The run as a user would hand it in: a file beside its model."""
    model = folder / "MODEL"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps({**row["model"], "dtype": "bfloat16", "random_weights": True}))
    config = {**row["config"], "model_name_or_path": str(model), "output_dir": "out"}
    (folder / "config.yml").write_text(json.dumps(config))
    trainer = row["trainer"] if row["trainer"] != "trl" else f"trl:{row['method']}"
    versions = (*VERSIONS[row.get("site", row["trainer"]).partition(":")[0]], f"torch=={row['torch'].split('+')[0]}")
    options = Options(gpu="h200", trainer=trainer, versions=versions, alloc_conf=row["alloc_conf"])
    return open_subject(folder / "config.yml", options)


def lengths_of(batches: list[dict[str, Any]], row: dict[str, Any], seed: int = _SEEDS[0]) -> Lengths | None:
    """Sample lengths that give the batches that came; of packed ones, the widths themselves."""
    if not batches:
        return None
    if found := recorded(batches, row):
        return found
    return trl_lengths(batches, row, seed) if row["trainer"] == "trl" else _alike(batches, row)


def _alike(batches: list[dict[str, Any]], row: dict[str, Any]) -> Lengths | None:
    """Rows nearly as long as the widest: where nothing goes by their tokens, only widths count."""
    if row["config"].get("packing"):
        return None
    lines: list[str] = []
    for batch in batches:
        rows, width = batch["input_ids"]
        spare = 9 if batch.get("padded") or "attention_mask" not in batch else 0
        if row["method"] in PAIRS:
            lines += [f"[{width}, {width - spare}]", *[f"[{width - spare}, {width - spare}]"] * (rows // 2 - 1)]
        elif kl := batch.get("kl_input_ids"):
            lines += [f"[{width}, {kl[1]}]", *[f"[{width - spare}, {kl[1] - spare}]"] * (rows - 1)]
        else:
            lines += [str(width), *[str(width - spare)] * (rows - 1)]
    return parse_lengths("\n".join(lines), "measured batches")


def predicted(row: dict[str, Any], seed: int = _SEEDS[0]) -> tuple[Figures, dict[str, str]]:
    """The same figures, foretold; and the features of the run."""
    with tempfile.TemporaryDirectory() as folder:
        subject = subject_of(row, Path(folder))
        prediction = subject.prediction(
            lengths=lengths_of(row["widths"], row, seed),
            eval_lengths=lengths_of(one_evaluation(row), row, seed),
            steps=len(row["steps"]),
        )
    load, rest = [], []
    for phase in prediction.needs.phases:
        (load if phase.step == 0 else rest).append(phase)  # references that are worked out beforehand, too
    figures = Figures(
        *(max(getattr(phase, f"peak_{kind}_bytes") for phase in load) / MIB for kind in ("allocated", "reserved")),
        *(max(getattr(phase, f"peak_{kind}_bytes") for phase in rest) / MIB for kind in ("allocated", "reserved")),
    )
    return figures, features(prediction.run, prediction.model)


def rows(files: list[Path]) -> list[dict[str, Any]]:
    """The runs that reached their end."""
    files = files or sorted(RUNS.glob("trainers-*.jsonl"))
    found = [json.loads(line) for file in files for line in file.read_text().splitlines() if line.strip()]
    return [row for row in found if row.get("steps") and not row["rc"]]


def entry_of(row: dict[str, Any]) -> Entry:
    """The errors of a run's prediction, as shares; of drawn lengths the draw that is furthest off counts."""
    seeds = _SEEDS if are_drawn(row) else _SEEDS[:1]
    return max((_entry(row, seed) for seed in seeds), key=lambda entry: abs(entry.reserved))


def _entry(row: dict[str, Any], seed: int) -> Entry:
    (guess, found), truth = predicted(row, seed), measured(row)
    load, allocated, reserved = (
        getattr(guess, name) / getattr(truth, name) - 1 for name in ("load_reserved", "allocated", "reserved")
    )
    return Entry(name=row["name"], features=found, allocated=allocated, reserved=reserved, load=load)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--record", action="store_true", help="of all of them; writes the errors into the package")
    arguments = parser.parse_args()
    entries: dict[str, list[Entry]] = {}
    for row in rows([] if arguments.record else arguments.files):
        if arguments.only not in row["name"]:
            continue
        try:
            entry, truth = entry_of(row), measured(row)
        except VramwiseError as error:
            print(f"{row['name']:45s} not predicted: {error}")
            continue
        entries.setdefault(row["trainer"], []).append(entry)
        print(
            f"{row['name']:45s} load {entry.load:+7.2%}  allocated {truth.allocated:9.1f} {entry.allocated:+7.2%}  "
            f"reserved {truth.reserved:9.1f} {entry.reserved:+7.2%}",
            flush=True,
        )
    for trainer, found in entries.items():
        for name in ("load", "allocated", "reserved"):
            sizes = sorted(abs(getattr(one, name)) for one in found)
            within = sum(size <= 0.01 for size in sizes), sum(size <= 0.03 for size in sizes)
            print(
                f"{trainer} {name}: {len(sizes)} runs, median {median(sizes):.2%}, worst {sizes[-1]:.2%}, "
                f"{within[0]} within 1 %, {within[1]} within 3 %"
            )
        if arguments.record:
            from rank_memory import entries_of  # it builds on this module

            write([*found, *entries_of(trainer)], trainer)


if __name__ == "__main__":
    main()
