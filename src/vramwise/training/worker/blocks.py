"""Samples of plain TrainingArguments: joined texts cut into blocks of one size, as transformers' run_clm.py does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vramwise.training.worker.prompts import Sample, make_sample
from vramwise.training.worker.rows import Row, read_rows
from vramwise.types import RunSpec

# This many texts are joined at a time, and incomplete blocks are dropped: `datasets.map` in batches of 1,000.
_JOINED = 1000


def load_blocks(run: RunSpec, tokenizer: Any) -> tuple[list[Sample], list[Sample]]:
    """Return samples to train on, and samples held out: those of their own file, else of the first rows."""
    config = run.config
    base = Path(config.document.path).parent
    (data,), tests = config.get("datasets"), config.get("test_datasets", ())
    rows = read_rows(data, base)
    if tests:
        held = read_rows(tests[0], base)
    else:
        count = round(len(rows) * (config.get("val_set_size") or 0))
        rows, held = rows[count:], rows[:count]
    train = list(_blocks(rows, data, tokenizer))
    return train, list(_blocks(held, data, tokenizer)) if run.evaluation.evaluates else []


def _blocks(rows: Sequence[Row], data: Mapping[str, Any], tokenizer: Any) -> Iterator[Sample]:
    size = int(data["size"])
    for start in range(0, len(rows), _JOINED):
        texts = [_text(row) for row in rows[start : start + _JOINED]]
        ids = [token for text in texts for token in tokenizer(text, verbose=False)["input_ids"]]
        for at in range(0, len(ids) - size + 1, size):
            yield make_sample([(ids[at : at + size], True)])


def _text(row: Row) -> str:
    return str(row["text"] if "text" in row else next(iter(row.values())))
