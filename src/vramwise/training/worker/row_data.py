"""Samples of files with one sample per row: held out before they are read, as `datasets` draws them or the first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.training.worker.llamafactory_samples import llamafactory_samples
from vramwise.training.worker.prompts import Sample, sample_of
from vramwise.training.worker.rows import Row, read_rows
from vramwise.training.worker.trl_samples import trl_samples
from vramwise.types import RunSpec

# This many texts are joined at a time, and incomplete blocks are dropped: `datasets.map` in batches of 1,000.
_JOINED = 1000
Listed = list[tuple[Row, Mapping[str, Any]]]
_ENCODERS: Mapping[str, Callable[[Row, Mapping[str, Any], Any], Iterator[Sample]]] = {
    "trl": trl_samples,
    "llamafactory": llamafactory_samples,
}


def load_row_data(run: RunSpec, tokenizer: Any, *, seed: int) -> tuple[list[Sample], list[Sample], list[str]]:
    """Return samples to train on, samples held out, and notes about them."""
    config = run.config
    base = Path(config.document.path).parent
    rows, held = _rows(config.get("datasets", ()), base), _rows(config.get("test_datasets", ()), base)
    size = config.get("val_set_size") or 0
    if size and not held:
        divide = _first if config.get("held_out_first") else _drawn
        rows, held = divide(rows, size, seed)
    notes: list[str] = []
    train = _encoded(rows, tokenizer, notes, "training")
    return train, (_encoded(held, tokenizer, notes, "evaluation") if run.evaluation.evaluates else []), notes


def _rows(blocks: Sequence[Mapping[str, Any]], base: Path) -> Listed:
    return [(row, block) for block in blocks for row in read_rows(block, base)[: block.get("first")]]


def _first(rows: Listed, share: float, _seed: int) -> tuple[Listed, Listed]:
    count = round(len(rows) * share)
    return rows[count:], rows[:count]


def _drawn(rows: Listed, size: float, seed: int) -> tuple[Listed, Listed]:
    """Split as `Dataset.train_test_split` does: both parts in the order of one permutation."""
    import numpy

    count = math.ceil(len(rows) * size) if size < 1 else int(size)
    if count >= len(rows):
        raise VramwiseError(f"{count} of {len(rows)} samples would be held out: nothing to train on")
    order = [int(number) for number in numpy.random.default_rng(seed).permutation(len(rows))]
    return [rows[number] for number in order[count:]], [rows[number] for number in order[:count]]


def _encoded(rows: Listed, tokenizer: Any, notes: list[str], what: str) -> list[Sample]:
    if rows and rows[0][1]["type"] == "blocks":
        return list(_blocks(rows, tokenizer))
    samples: list[Sample] = []
    for row, block in rows:
        try:
            samples += _ENCODERS[block["type"]](row, block, tokenizer)
        except KeyError as error:
            have = ", ".join(sorted(map(str, row)))
            raise VramwiseError(f"dataset {block.get('path')}: a row has no {error}; it has {have}") from error
    if len(samples) < len(rows):
        notes.append(f"{len(rows) - len(samples)} of {len(rows)} {what} samples: nothing to learn (dropped)")
    return samples


def _blocks(rows: Listed, tokenizer: Any) -> Iterator[Sample]:
    """Yield joined texts cut to one size."""
    size = int(rows[0][1]["size"])
    for start in range(0, len(rows), _JOINED):
        texts = [_text(row) for row, _ in rows[start : start + _JOINED]]
        ids = [token for text in texts for token in tokenizer(text, verbose=False)["input_ids"]]
        for at in range(0, len(ids) - size + 1, size):
            yield sample_of(ids[at : at + size], ids[at : at + size])


def _text(row: Row) -> str:
    return str(row["text"] if "text" in row else next(iter(row.values())))
