"""Lengths of the samples in measured batches, and how many tokens of each are trained on.

Newer records have both, of every row. Older ones of TRL, whose losses take labelled tokens alone, have the widths of
batches only: the longest sample of a batch is known by that, and the others are drawn, with fixed seeds, from those of
the same data that are no longer. Where the allocator's events were recorded, they show how many tokens were labelled:
then that number is taken.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vramwise.variants.lengths import Lengths

# Tokens of the made-up data, each sample's prompt first: [prompt, whole], of pairs [prompt, chosen, rejected].
DATA = Path(__file__).resolve().parent.parent / "tests" / "data" / "truth" / "trainers-data.json"
_FILES = {"sft": "sft", "dpo": "dpo", "reward": "dpo", "kto": "kto"}

Rows = list[tuple[int, int]]  # tokens of a row, and how many of them are trained on


PAIRS = ("dpo", "reward", "rm")


def recorded(batches: Sequence[dict[str, Any]], row: dict[str, Any]) -> Lengths | None:
    """The rows that came, where each was recorded."""
    if any("sequence_ends" in batch for batch in batches) or (row["config"].get("packing") and _counted(batches)):
        widths = [batch["input_ids"][1] for batch in batches]
        return Lengths(tokens=widths, labelled=[sum(batch["trained"]) for batch in batches], packed=True)
    if row["config"].get("packing") or not all("tokens" in batch for batch in batches):
        return None
    rows = [found for batch in batches for found in _in_order(batch, row["method"])]
    tokens, labelled = zip(*rows, strict=True)
    return Lengths(tokens=tokens, labelled=labelled, pairs=row["method"] not in ("sft", "pt"))


def _counted(batches: Sequence[dict[str, Any]]) -> bool:
    """Whether the tokens that are trained on were counted in every batch."""
    return all("trained" in batch for batch in batches)


def _in_order(batch: dict[str, Any], method: str) -> Rows:
    """Sample by sample: a pair's two rows are chosen and rejected, KTO's its own and the mismatched one."""
    own = list(zip(batch["tokens"], batch.get("trained", batch["tokens"]), strict=True))
    if method in PAIRS:
        half = len(own) // 2
        return [row for pair in zip(own[:half], own[half:], strict=True) for row in pair]
    if method != "kto":
        return own
    prefix = "KL" if "KL_tokens" in batch else "kl"
    others = list(zip(batch.get(f"{prefix}_tokens", ()), batch.get(f"{prefix}_trained", ()), strict=True)) or own
    return [row for pair in zip(own, others, strict=True) for row in pair]


def are_drawn(row: dict[str, Any]) -> bool:
    """Whether lengths that matter are not those of the run."""
    if recorded(row["widths"], row):
        return False
    several = any(batch["input_ids"][0] > 1 and "labelled" not in batch for batch in row["widths"])
    return row["trainer"] == "trl" and row["method"] != "reward" and several


def trl_lengths(batches: Sequence[dict[str, Any]], row: dict[str, Any], seed: int) -> Lengths:
    """Lengths that give these batches, and how many tokens of each are labelled."""
    data = json.loads(DATA.read_text())[_FILES[row["method"]]]
    if row["config"].get("packing"):
        return _packed(batches, data)
    rng = random.Random(seed)
    longest = row["config"].get("max_length", 1024)
    rows: Rows = []
    for batch in batches:
        rows += _measured(batch, _rows(batch, row["method"], data, longest, rng))
    tokens, labelled = zip(*rows, strict=True)
    return Lengths(tokens=tokens, labelled=labelled, pairs=row["method"] != "sft")


def _measured(batch: dict[str, Any], rows: Rows) -> Rows:
    """The labels that were counted, as many as go into each row; KTO's mismatched rows have as many."""
    if "labelled" not in batch:
        return rows
    kinds = 2 if "KL_input_ids" in batch else 1
    left = [batch["labelled"]] * kinds
    found: Rows = []
    for place, (tokens, _) in enumerate(rows):
        taken = min(left[place % kinds], tokens - 1)
        left[place % kinds] -= taken
        found.append((tokens, taken))
    return found


def _packed(batches: Sequence[dict[str, Any]], data: list[list[int]]) -> Lengths:
    """Widths; every sample has a prompt, taken to be as long as they are on average."""
    prompt = sum(sample[0] for sample in data) / len(data)
    widths = [batch["input_ids"][1] for batch in batches]
    samples = [batch["cu_seq_lens_q"][0] - 1 for batch in batches]
    labelled = [
        batch.get("labelled", round(width - prompt * count))
        for batch, width, count in zip(batches, widths, samples, strict=True)
    ]
    return Lengths(tokens=widths, labelled=labelled, samples=samples, packed=True)


def _rows(batch: dict[str, Any], method: str, data: list[list[int]], longest: int, rng: random.Random) -> Rows:
    count, width = batch["input_ids"]
    if method == "kto":
        own = _drawn(count, width, data, longest, rng)
        others = _drawn(count, batch["KL_input_ids"][1], data, longest, rng)
        return [row for pair in zip(own, others, strict=True) for row in pair]
    if method == "sft":
        return _drawn(count, width, data, longest, rng)
    return _drawn(count // 2, width, data, longest, rng)


def _drawn(count: int, width: int, data: list[list[int]], longest: int, rng: random.Random) -> Rows:
    """One sample that is as long as the batch is wide, and others at most so long."""
    cut = [[min(tokens, longest) for tokens in sample] for sample in data]
    first = next((sample for sample in cut if max(sample[1:]) == width), None) or [
        cut[0][0],
        *[width] * (len(cut[0]) - 1),
    ]
    fitting = [sample for sample in cut if max(sample[1:]) <= width]
    samples = [first, *rng.choices(fitting, k=count - 1)]
    return [(tokens, max(0, tokens - sample[0])) for sample in samples for tokens in sample[1:]]
