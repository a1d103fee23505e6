"""Scripts and notebooks, ready to run on a card without a hub: `python prepare_scripts.py OUT FOLDER… --draw second`.

Each gets a local model of its family (real widths, few layers, random weights), made-up data with the columns it reads,
and the edits listed with its case: names of models, arguments that the installed releases no longer take, cells that
install, show or generate. Everything else is as its author wrote it. Writes OUT/adapted/, OUT/cases.json and, with
`vramwise predict` on the adapted file, OUT/predictions.jsonl: before anything has run.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import script_cases
import script_cases_second
from script_parts import MODELS
from script_shapes import SHAPES

TORCH = "2.11.0"
_SHARED = {"peft": "0.21.2", "bitsandbytes": "0.50.2", "accelerate": "1.15.0", "xformers": "0"}  # 0: not installed
VERSIONS = {
    "plain": {**_SHARED, "transformers": "5.20.1", "trl": "1.14.1"},
    "unsloth": {**_SHARED, "transformers": "5.17.0", "trl": "1.15.0", "unsloth": "2026.10.9"},
}
DRAWS = {"first": script_cases.CASES, "second": script_cases_second.CASES}


def adapted(text: str, case: dict[str, Any]) -> str:
    """The source with a case's edits; each must find its place."""
    for pattern, new in case["edits"]:
        text, count = re.subn(pattern, lambda _, new=new: new, text)
        if not count:
            raise SystemExit(f"{case['file']}: nothing matches {pattern}")
    return text


def adapted_notebook(data: str, case: dict[str, Any]) -> str:
    """Code cells up to the one that trains, without those that install or that a case drops."""
    cells = []
    for cell in json.loads(data)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code" or "pip install" in source or "memory stats" in source:
            continue
        if any(mark in source for mark in case.get("drop", ())):
            continue
        cells.append(source)
        if re.search(r"^\s*(\w+ = )?\w*trainer\w*\.train\(", source, re.MULTILINE):
            break
    marked = adapted("\n\0\n".join(cells), case).split("\n\0\n")
    made = [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": one} for one in marked
    ]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}, indent=1)


def predicted(path: Path, case: dict[str, Any]) -> dict[str, Any]:
    """What `vramwise predict` says of an adapted file, on the card that it will run on."""
    words = ["predict", str(path), "--gpu", "h200", "--torch", TORCH, "--offline", "--format", "json"]
    for name, version in VERSIONS["unsloth" if case.get("unsloth") else "plain"].items():
        words += ["--with", f"{name}=={version}"]
    for one in case.get("set", ()):
        words += ["--set", one]
    if case.get("args"):
        words += ["--args", case["args"]]
    if "lengths" in case:
        told = path.with_suffix(".lengths")
        told.write_text(f"{case['lengths']}\n" * 400)
        words += ["--lengths", str(told)]
    done = subprocess.run([sys.executable, "-m", "vramwise", *words], capture_output=True, text=True, check=False)
    try:
        return {"command": shlex.join(words), "predicted": json.loads(done.stdout)}
    except ValueError:
        return {"command": shlex.join(words), "error": (done.stderr or done.stdout)[-2000:]}


def main() -> None:
    """Write adapted files, cases and predictions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("folders", type=Path, nargs="+", help="where the files are")
    parser.add_argument("--draw", choices=DRAWS, default="first")
    parser.add_argument("--also", default="", help="names of the other draw to run again, with commas between")
    asked = parser.parse_args()
    again = asked.also.split(",")
    out, cases = asked.out, {name: one for draw in DRAWS.values() for name, one in draw.items() if name in again}
    cases |= DRAWS[asked.draw]
    (out / "adapted").mkdir(parents=True, exist_ok=True)
    for name, config in SHAPES.items():
        folder = Path(MODELS) / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps({**config, "dtype": "bfloat16"}))
    with (out / "predictions.jsonl").open("w") as file:
        for name, case in cases.items():
            source = next(one for folder in asked.folders if (one := folder / case["file"]).exists())
            path = out / "adapted" / f"{name}{source.suffix}"
            text = source.read_text()
            path.write_text(adapted_notebook(text, case) if source.suffix == ".ipynb" else adapted(text, case))
            row = {"name": name, **predicted(path, case)}
            file.write(json.dumps(row) + "\n")
            print(name, row.get("error") or "predicted", flush=True)
    (out / "cases.json").write_text(json.dumps({"models": MODELS, "shapes": SHAPES, "cases": cases}, indent=1))


if __name__ == "__main__":
    main()
