"""Predicted against measured, for ranks of real trainers that share one card: loading, allocated and reserved.

A recorded run holds one entry a rank; the fullest one counts. Everything else is as in `axolotl.py`.

    python tests/measured/rank_memory.py [FILE.jsonl ...] [--only NAME]
    python tests/measured/rank_memory.py --seal CASES.json        predictions for cases of `card/rank_runs.py` before they run

Sealed ones take the batches of a recorded run of the same trainer, method and ranks, whose data and seed are the same;
where there is none, batches are as wide as they may be.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[2] / "bench"
sys.path[:0] = [str(Path(__file__).parent), str(HERE), str(HERE / "card"), str(HERE.parent / "src")]

import trainer_memory as trainers  # noqa: E402
from axolotl_memory import RUNS, Figures, figures_of, lengths_of, measured  # noqa: E402
from record import Entry  # noqa: E402
from vramwise.errors import VramwiseError  # noqa: E402
from vramwise.opening.options import Options  # noqa: E402
from vramwise.opening.subject import Subject, open_subject  # noqa: E402
from vramwise.variants.features import features  # noqa: E402

# Where a run does not say which release it was.
_VERSIONS: dict[str, tuple[str, ...]] = {
    "axolotl": ("axolotl==0.21.0",),
    "trl": ("trl==1.14.1", "transformers==5.20.1", "peft==0.21.2", "accelerate==1.15.0"),
    "llamafactory": (
        *("llamafactory==0.9.5", "transformers==5.6.0"),
        *("peft==0.18.1", "trl==0.24.0", "accelerate==1.11.0", "deepspeed==0.19.8"),
    ),
}


def rows(files: list[Path]) -> list[dict[str, Any]]:
    """Runs whose ranks all reached their end, each with the figures of its fullest rank."""
    files = files or sorted(RUNS.glob("ranks-*.jsonl"))
    found = [json.loads(line) for file in files for line in file.read_text().splitlines() if line.strip()]
    return [_fullest(row) for row in found if row.get("ranks") and all(row["ranks"]) and not any(row["rc"])]


def _fullest(row: dict[str, Any]) -> dict[str, Any]:
    # a mask in the batch of a row that is filled up says that some of it is padding
    ranks = [
        {**rank, "widths": [{"padded": "attention_mask" in batch, **batch} for batch in rank["widths"]]}
        for rank in row["ranks"]
    ]
    fullest = max(ranks, key=lambda rank: max(step[2] for step in rank["steps"]))
    return {**row, **fullest, **{f"load_peak_{kind}_mib": _load(ranks, kind) for kind in ("allocated", "reserved")}}


def _load(ranks: list[dict[str, Any]], kind: str) -> float:
    """The peak of loading on any rank: the first may hold more. A trainer may have reset the figures on the way."""
    return max(rank.get(f"load_{of}_{kind}_mib", 0) for rank in ranks for of in ("peak", "overall"))


def subject_of(row: dict[str, Any], folder: Path) -> Subject:
    """The run as a user would hand it in: a file, its model, and what it is launched with."""
    model = folder / "MODEL"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps({**row["model"], "dtype": "bfloat16"}))
    trainer = row.get("trainer", "axolotl").partition(":")[0]
    key = "base_model" if trainer == "axolotl" else "model_name_or_path"
    config = {**row["config"], key: str(model), "output_dir": "out"}
    if row.get("zero"):
        (folder / "ds.json").write_text(json.dumps(row["zero"]))
        config["deepspeed"] = "ds.json"
    told = ()
    if row.get("accelerate"):
        (folder / "accelerate.yaml").write_text(json.dumps(row["accelerate"]))
        told = (("config_file", str(folder / "accelerate.yaml")),)
    (folder / "config.yml").write_text(json.dumps(config))
    options = Options(
        gpu=f"{max(2, row['world'])}xh200",  # one rank of DDP by itself has buckets too
        versions=(*_VERSIONS[trainer], f"torch=={row['torch'].split('+')[0]}"),
        alloc_conf=row["alloc_conf"],
        trainer=row.get("trainer"),
        accelerate=told,
    )
    return open_subject(folder / "config.yml", options)


def predicted(row: dict[str, Any]) -> tuple[Figures, dict[str, str]]:
    """The same figures, foretold; and the features of the run."""
    trainer, _, method = row.get("trainer", "axolotl").partition(":")
    if "widths" not in row:
        lengths = eval_lengths = None
    elif trainer == "axolotl":
        lengths, eval_lengths = lengths_of(row["widths"], row["config"]), lengths_of(row["eval_widths"], {})
    else:
        plain = {**row, "trainer": trainer, "method": method or row["config"]["stage"]}
        lengths, eval_lengths = [trainers.lengths_of(row[key], plain) for key in ("widths", "eval_widths")]
    with tempfile.TemporaryDirectory() as folder:
        subject = subject_of(row, Path(folder))
        prediction = subject.prediction(
            lengths=lengths, eval_lengths=eval_lengths, steps=row.get("max_steps") or len(row["steps"])
        )
    return figures_of(prediction), features(prediction.run, prediction.model)


def seal(cases: Path) -> None:
    """Print a JSON line a case: what it will take, in MiB, and whose batches were taken."""
    import axolotl_runs

    known = {_kind(row): row for row in rows([])}
    for name, case in json.loads(cases.read_text()).items():
        trainer = case["trainer"]
        config = axolotl_runs.config_of(name, case if trainer != "axolotl" else {**case, "trainer": None})
        row = {
            **case,
            "trainer": trainer if trainer != "trl" else f"trl:{case['method']}",
            "config": axolotl_runs._without_places(config),
            "model": axolotl_runs.MODELS[case["model"]],
            "torch": "2.11.0",
            "alloc_conf": case.get("alloc", "expandable_segments:True"),
            "max_steps": config["max_steps"],
        }
        like = known.get(_kind(row))
        if like:
            row |= {"widths": like["widths"], "eval_widths": like["eval_widths"]}
        try:
            figures = asdict(predicted(row)[0])
        except VramwiseError as error:
            figures = {"not predicted": str(error)}
        print(json.dumps({"name": name, **figures, "batches": like and like["name"]}), flush=True)


def _kind(row: dict[str, Any]) -> tuple[Any, ...]:
    """What decides the batches of a run, the data being the same for all."""
    config = row["config"]
    keys = ("rl", "micro_batch_size", "per_device_train_batch_size", "sample_packing", "eval_steps", "max_steps")
    keys = (*keys, "gradient_accumulation_steps")
    return row.get("trainer", "axolotl"), row["world"], *(config.get(key) for key in keys)


def entries_of(trainer: str) -> list[Entry]:
    """The recorded runs of one trainer, as `make record` keeps them."""
    found = []
    for row in rows([]):
        if row.get("trainer", "axolotl").partition(":")[0] != trainer:
            continue
        (guess, had), truth = predicted(row), measured(row)
        load, allocated, reserved = (
            getattr(guess, name) / getattr(truth, name) - 1 for name in ("load_reserved", "allocated", "reserved")
        )
        found.append(Entry(name=row["name"], features=had, allocated=allocated, reserved=reserved, load=load))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--seal", type=Path, help="cases to predict before they run")
    arguments = parser.parse_args()
    if arguments.seal:
        seal(arguments.seal)
        return
    for row in rows(arguments.files):
        if arguments.only not in row["name"]:
            continue
        try:
            guess, truth = predicted(row)[0], measured(row)
        except VramwiseError as error:
            print(f"{row['name']:44s} not predicted: {error}")
            continue
        pairs = [(name, getattr(guess, name), getattr(truth, name)) for name in Figures.__slots__]
        shown = " | ".join(
            f"{name} {one:7.0f} {other:7.0f} {100 * (one / other - 1):+6.2f}" for name, one, other in pairs
        )
        print(f"{row['name']:44s} {shown}", flush=True)


if __name__ == "__main__":
    main()
