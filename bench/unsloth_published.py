"""Predictions beside the peaks that Unsloth's own notebooks printed: T4, L4 and A100, real weights and data.

    python bench/unsloth_published.py PUBLISHED.csv FOLDER_OF_NOTEBOOKS [--only NAME]

The stored outputs are of versions from 2024 to 2026; each is predicted as the nearest version that is known. Lengths of
rows are not stored: they are drawn from a guess at the spread that the dataset has (`SPREADS`), with a fixed seed.
"""

from __future__ import annotations

import argparse
import csv
import random
import re
import sys
from math import exp
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

from vramwise.errors import VramwiseError  # noqa: E402
from vramwise.opening.options import Options  # noqa: E402
from vramwise.opening.subject import open_subject  # noqa: E402
from vramwise.variants.lengths import parse_lengths  # noqa: E402

GIB = 1024**3
CARDS = {
    "Tesla T4": "t4",
    "NVIDIA L4": "l4",
    "NVIDIA A100-SXM4-40GB": "a100-40gb",
    "NVIDIA A100-SXM4-80GB": "a100-80gb",
}
# Median and spread (of the logarithm) of a sample's tokens, template included, by the dataset's name. Guesses: none of
# these datasets was read.
SPREADS: dict[str, tuple[float, float]] = {
    "alpaca": (180, 0.55),
    "guanaco|sharegpt": (350, 0.9),
    "FineTome": (450, 0.75),
    "ultrachat": (1100, 0.5),
    "TinyStories": (230, 0.35),
    "OpenMathReasoning": (2000, 0.8),
    "Multilingual-Thinking": (900, 0.6),
    "Emilia": (300, 0.6),  # up to 30 seconds of speech at 25 tokens a second, and its text
}
_NAMED = re.compile(r"""load_dataset\(\s*(?:path\s*=\s*)?\\?["']([^"'\\]+)""")
_SAMPLES = 480
_SEED = 3407


def lengths_for(text: str) -> tuple[str, Any]:
    """The name of the spread that fits the notebook's code, and lengths drawn from it; none where none does."""
    named = " ".join(_NAMED.findall(text))
    for words, (middle, spread) in SPREADS.items():
        if re.search(words, named, re.IGNORECASE):
            draw = random.Random(_SEED)
            drawn = [str(max(16, int(middle * exp(draw.gauss(0, spread))))) for _ in range(_SAMPLES)]
            return words.partition("|")[0], parse_lengths("\n".join(drawn), words)
    return "", None


def predicted(row: dict[str, str], folder: Path) -> tuple[float, float, str]:
    """GiB reserved once the model is loaded, at the peak, and what is to be said of it."""
    path = folder / row["file"]
    version = row["unsloth"].rstrip(".")
    others = {"torch": row["torch"].partition("+")[0], "transformers": row["transformers"]}
    versions = [f"{package}=={other}" for package, other in others.items() if other]
    subject = open_subject(path, Options(gpu=CARDS[row["gpu"]], versions=(f"unsloth=={version}", *versions)))
    name, lengths = lengths_for(path.read_text(encoding="utf-8"))
    prediction = subject.prediction(lengths=lengths)
    phases = prediction.needs.phases
    load = [phase.peak_reserved_bytes for phase in phases if phase.phase == "load"]
    whole = [phase.peak_reserved_bytes for phase in phases]
    assert subject.model is not None
    said = [subject.model.model_type, name or "full rows", *(one.name for one in subject.run.unfollowed)]
    return max(load) / GIB, max(whole) / GIB, ", ".join(said)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("published", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="notebooks whose name contains this")
    arguments = parser.parse_args()
    errors = []
    with arguments.published.open() as file:
        rows = [row for row in csv.DictReader(file) if arguments.only in row["file"]]
    for row in rows:
        shown = row["file"].removeprefix("unsloth-nb__").removesuffix(".ipynb")
        before, peak = float(row["reserved_before_gb"]), float(row["peak_reserved_gb"])
        try:
            load, guess, said = predicted(row, arguments.folder)
        except (VramwiseError, AssertionError) as error:
            print(f"{shown:46s} {row['gpu'][-12:]:12s} not predicted: {str(error)[:110]}", flush=True)
            continue
        off = guess / peak - 1
        errors.append(abs(off))
        figures = f"load {load:6.2f} / {before:6.2f}  peak {guess:6.2f} / {peak:6.2f} {off:+7.1%}"
        print(f"{shown:46s} {row['gpu'][-12:]:12s} {figures}  {row['unsloth']}  {said}", flush=True)
    if errors:
        near = sum(error <= 0.15 for error in errors)
        print(f"{len(errors)} predicted: median {median(errors):.1%}, {near} within 15 %")


if __name__ == "__main__":
    main()
