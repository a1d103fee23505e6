"""Collects the first prediction of every measured run: what was said before the run could correct anything.

python bench/first_predictions.py rerun TREE axolotl|trainers|unsloth RUNS.jsonl >> FOLDER/DRAW.jsonl
python bench/first_predictions.py collect FOLDER     # writes bench/results/first_predictions.jsonl

`rerun` predicts runs with the code of an older commit (TREE: `git archive COMMIT | tar -x`), the one before the runs
came in. `collect` joins these with the figures that were written down at first contact: `foretold` in the records, and
the tables of `bench/results`. `accuracy.json` is no source: today's code, which these runs corrected, makes it anew.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
TRUTH = HERE.parent / "tests" / "data" / "truth"
FIRST = RESULTS / "first_predictions.jsonl"
RECORD = HERE.parent / "src" / "vramwise" / "facts" / "accuracy.json"
# What was new about the runs of a draw, and where reruns come from: the commit before the runs came in.
RERUN = {
    "axolotl, first draw": ("12214469^", ["trainer"], "axolotl-contact"),
    "TRL and LLaMA-Factory, first draw": ("2091654e", ["trainer"], "trainers-h200"),
    "TRL and LLaMA-Factory, second draw": ("25ce4370", ["feature"], "trainers-wide"),
    "TRL and LLaMA-Factory, third draw": ("847c8cce", [], "trainers-wide-third"),
    "unsloth, first draw": ("7e0fef85", ["trainer"], "unsloth-chance"),
    "axolotl, releases": ("cd50e36d^", [], "axolotl-releases"),
    "TRL, releases": ("cd50e36d^", ["version"], "trainers-releases"),
    "axolotl, rare options": ("a840fd58", ["feature"], "axolotl-rare"),
    "TRL and LLaMA-Factory, rare options": ("a840fd58", ["feature"], "trainers-rare"),
}
_FORETOLD = {"unsloth, second draw": "unsloth-drawn", "unsloth, third draw": "unsloth-third"}
_MEASURED_RELEASES = ("0.19.0", "0.21.0")  # of Axolotl, before the draw of releases
# A notebook whose loading is predicted this closely ran the release and the weights that were predicted.
_SAME_LOADING = 0.03
# Its comparison was wrong, not its prediction: it joined the batches of four evaluations.
_MISCOMPARED = "o16_"
# Kinds of features that are left out one at a time.
_KINDS = ("method", "rl", "optimizer", "loss", "attention", "packing", "checkpointing", "activation_offloading")


def rerun(tree: Path, module: str, runs: Path) -> None:
    """Print what the code of a tree predicts of runs, one JSON line each."""
    sys.path[:0] = [str(tree / "bench"), str(tree / "src")]
    bench: Any = importlib.import_module(module)
    for row in bench.rows([runs]):
        try:
            guess, truth = bench.predicted(row), bench.measured(row)
        except Exception as error:  # old code may not know what the record has
            print(json.dumps({"name": row["name"], "error": f"{type(error).__name__}: {error}"[:200]}), flush=True)
            continue
        guess = guess[0] if isinstance(guess, tuple) else guess
        figures = {"predicted": round(guess.reserved), "measured": round(truth.reserved)}
        print(json.dumps({"name": row["name"], **figures}), flush=True)


def collect(folder: Path) -> None:
    """Write one line for each run."""
    known = _known()
    found = [*_reran(folder), *_foretold(), *_traced(), *_by_hand(), *_ranks(), *_new(), *_published()]
    lines = []
    for one in found:
        words = known.get(one["name"], {})
        one["trainer"] = words.get("trainer") or one.get("trainer", "hf-trainer")
        one["family"] = words.get("family", "").removeprefix("the ").removesuffix(" family") or one.get("family", "")
        one["features"] = [words[kind] for kind in _KINDS if kind in words]
        lines.append(json.dumps({key: one[key] for key in _FIELDS}))
    FIRST.write_text("\n".join(lines) + "\n")


_FIELDS = ("draw", "name", "trainer", "family", "new", "features", "predicted", "measured")


def _known() -> dict[str, dict[str, str]]:
    """Return the features of recorded runs, by name. (The errors beside them are not read.)"""
    stored = json.loads(RECORD.read_text())
    return {
        name.partition(" ")[0]: dict([stored["features"][at] for at in indexes]) for name, *_, indexes in stored["runs"]
    }


def _reran(folder: Path) -> Iterator[dict[str, Any]]:
    for draw, (_, new, file) in RERUN.items():
        for line in (folder / f"{file}.jsonl").read_text().splitlines():
            one = json.loads(line)
            if "error" in one or one["name"].startswith(_MISCOMPARED):
                continue
            third = re.search("[a-z]47", one["name"]) is not None  # numbers of the third draw
            if file.startswith("trainers-wide") and third != (draw == "TRL and LLaMA-Factory, third draw"):
                continue
            older = draw == "axolotl, releases" and _release(file, one["name"]) not in _MEASURED_RELEASES
            yield {**one, "draw": draw, "new": ["version"] if older else new}


def _release(file: str, name: str) -> str:
    rows = map(json.loads, (TRUTH / f"{file}.jsonl").read_text().splitlines())
    return next(row["axolotl"] for row in rows if row["name"] == name)


def _foretold() -> Iterator[dict[str, Any]]:
    for draw, file in _FORETOLD.items():
        for row in map(json.loads, (TRUTH / f"{file}.jsonl").read_text().splitlines()):
            if row.get("steps") and not row["rc"]:
                said, found = row["foretold"]["reserved"], max(step[2] for step in row["steps"])
                yield {"draw": draw, "name": row["name"], "new": [], "predicted": said, "measured": found}


def _rows(file: str, start: str = "# ", end: str = "") -> Iterator[list[str]]:
    """Return the cells of the tables between two texts of a page."""
    text = (RESULTS / file).read_text().replace("\N{MINUS SIGN}", "-")
    for line in text.partition(start)[2].partition(end or "\0")[0].splitlines():
        if line.startswith("|"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def _off(draw: str, name: str, measured: str, error: str, new: list[str], **more: str) -> Iterator[dict[str, Any]]:
    """Yield a run of a table that gives what was measured, and by how much the prediction was off."""
    found, off = (re.fullmatch(r"([-+]?[\d.,]+)( %| MiB)?", text) for text in (measured, error))
    if found and off:
        size = float(found[1].replace(",", ""))
        said = size * (1 + float(off[1]) / 100)
        yield {"draw": draw, "name": name, "new": new, "predicted": round(said), "measured": round(size), **more}


def _traced() -> Iterator[dict[str, Any]]:
    sets = (("# ", "## Second"), ("## Second", "## Why"), ("## Third", "## Fourth"), ("## Fourth", "Families written"))
    for number, (start, end) in enumerate(sets, start=1):
        for cells in _rows("traced_card.md", start, end):
            if len(cells) in (5, 6) and cells[0] != "run":
                family = re.split("_(full|lora|qdora|eager)", cells[0])[0]
                yield from _off(f"traced, set {number}", cells[0], cells[3], cells[4], ["family"], family=family)


def _by_hand() -> Iterator[dict[str, Any]]:
    for cells in _rows("traced_card.md", "Families written by hand"):
        if len(cells) == 6:
            family = re.split("_(full|lora|qdora|eager)", cells[0])[0]
            yield from _off("families by hand", cells[0], cells[3], cells[4], ["family"], family=family)


def _ranks() -> Iterator[dict[str, Any]]:
    for cells in _rows("ranks.md", end="## What was off"):
        first = len(cells) == 8
        if len(cells) in (5, 8):
            name = cells[0].removeprefix("*repeats by NCCL:* ")
            trainer = {"TRL": "trl", "Axolotl": "axolotl"}.get(name.partition(",")[0], "llamafactory")
            draw = "ranks, first contact" if first else "ranks, second contact"
            yield from _off(draw, name, cells[-1], cells[3], ["ranks"], trainer=trainer)


def _new() -> Iterator[dict[str, Any]]:
    """Yield configs that `new` wrote. Their table gives the error as a share of the prediction."""
    for cells in _rows("new_on_card.md"):
        if len(cells) == 8 and "MiB" in cells[5]:
            said, found = (float(cells[at].removesuffix(" MiB").replace(",", "")) for at in (4, 5))
            trainer = {"Unsloth": "unsloth", "LLaMA-Factory": "llamafactory", "Axolotl": "axolotl"}
            name = cells[0].removesuffix(" *")
            yield {
                "draw": "configs of new",
                "name": name,
                "new": [],
                "predicted": round(said),
                "measured": round(found),
                "trainer": trainer.get(name.partition(",")[0], "trl"),
            }


def _published() -> Iterator[dict[str, Any]]:
    """Yield peaks that notebooks printed on other cards; their rows are known only by a guess at the data's spread."""
    for cells in _rows("unsloth_published.md"):
        figures = [re.fullmatch(r"([\d.]+), ([\d.]+)", cells[at]) for at in (2, 3)] if len(cells) == 6 else []
        if len(figures) == 2 and all(figures):
            (load, loaded), (said, found) = [[float(size) for size in pair.groups()] for pair in figures if pair]
            known = abs(load / loaded - 1) <= _SAME_LOADING  # else the release or the weights were others
            new = ["card"] if known else ["card", "version"]
            new += ["feature"] if "not modelled" in cells[-1] else []
            yield {
                "draw": "published by Unsloth",
                "name": f"{cells[0]} on {cells[1]}",
                "trainer": "unsloth",
                "new": new,
                "predicted": round(1024 * said),
                "measured": round(1024 * found),
            }


if __name__ == "__main__":
    if sys.argv[1] == "rerun":
        rerun(Path(sys.argv[2]).resolve(), sys.argv[3], Path(sys.argv[4]))
    else:
        collect(Path(sys.argv[2]))
