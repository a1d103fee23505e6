"""Writes src/vramwise/facts/accuracy.json: every measured run with its features and the errors of its prediction.

python tests/measured/record.py          # all of it: seconds to a minute (`make record`)
python tests/measured/accuracy.py --record, and so axolotl.py, trainers.py and unsloth.py: the runs of one kind, others kept
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parents[2] / "bench"
sys.path[:0] = [str(Path(__file__).parent), str(HERE), str(HERE.parent / "src")]

RECORD = HERE.parent / "src" / "vramwise" / "facts" / "accuracy.json"
BASIS = (
    "measured on one H200 with torch 2.11; the model was corrected where these runs showed it wrong, so a run unlike "
    "them can be further off: of 66 plain runs it had not seen, 61 were within 1 %, of 131 of TRL and LLaMA-Factory 96"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One run as it is recorded: errors as shares (0.01 is 1 %), None where loading was not measured."""

    name: str
    features: Mapping[str, str]
    allocated: float
    reserved: float
    load: float | None = None


def write(entries: Iterable[Entry], trainer: str) -> None:
    """Replace the runs of one trainer; those of others stay."""
    kept = [] if not RECORD.exists() else _stored(json.loads(RECORD.read_text()), but=trainer)
    fresh = [
        (entry.name, *_rounded(entry), sorted((kind, phrase) for kind, phrase in entry.features.items()))
        for entry in entries
    ]
    runs = sorted([*kept, *fresh], key=lambda run: run[0])
    words = sorted({feature for run in runs for feature in run[4]})
    numbers = {feature: index for index, feature in enumerate(words)}
    lines = [json.dumps([*run[:4], [numbers[feature] for feature in run[4]]], separators=(",", ":")) for run in runs]
    RECORD.write_text(
        f'{{"basis": {json.dumps(BASIS)},\n"features": {json.dumps(words, separators=(",", ":"))},\n"runs": [\n'
        + ",\n".join(lines)
        + "\n]}\n"
    )


def _rounded(entry: Entry) -> tuple[float, float, float | None]:
    load = None if entry.load is None else round(100 * entry.load, 2)
    return round(100 * entry.allocated, 2), round(100 * entry.reserved, 2), load


def _stored(stored: dict, *, but: str) -> list[tuple]:
    words = [tuple(feature) for feature in stored.get("features", ())]
    runs = [(*run[:4], [words[index] for index in run[4]]) for run in stored["runs"]] if words else []
    return [run for run in runs if ("trainer", but) not in run[4]]


def main() -> None:
    """All runs of all trainers."""
    import accuracy
    import axolotl_memory as axolotl
    import trainer_memory as trainers
    import unsloth_memory as unsloth

    for module in (accuracy, axolotl, trainers, unsloth):
        sys.argv = [module.__file__, "--record"]
        module.main()


if __name__ == "__main__":
    main()
