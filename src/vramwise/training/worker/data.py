"""The training and evaluation samples of a config: read, tokenized, filtered by length, split and shuffled by seed.

Everything here depends only on the files, the config and the seed: a restart sees the same samples in the same order.
"""

from __future__ import annotations

import hashlib
import random
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.training.worker.prompts import PromptSettings, Sample, make_sample, samples_of
from vramwise.training.worker.rows import Row, read_rows
from vramwise.types import RunSpec

# This many texts are joined at a time, and incomplete blocks are dropped: `datasets.map` in batches of 1,000.
_JOINED = 1000
_SHORTEST = 2  # one token to predict, one to predict it from


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """The samples for training and evaluation, and notes about what was left out."""

    train: Sequence[Sample]
    evaluation: Sequence[Sample]
    notes: Sequence[str]


def load_data(run: RunSpec, tokenizer: Any, *, seed: int) -> Data:
    """Return all samples of the run; raises VramwiseError if none is left."""
    config = run.config
    if config.get("arguments"):
        return _checked(run, *_in_blocks(run, tokenizer), [])
    base = Path(config.document.path).parent
    settings = PromptSettings(
        train_on_inputs=bool(config.get("train_on_inputs", False)),
        sequence_len=run.shapes.sequence_len,
        chat_template=config.get("chat_template"),
        chat_template_jinja=config.get("chat_template_jinja"),
        default_system_message=config.get("default_system_message"),
    )
    notes: list[str] = []
    samples = _tokenized(config.get("datasets", ()), base, tokenizer, settings)
    samples = _fitting(samples, run.shapes.sequence_len, run, notes, "training")
    tests = config.get("test_datasets", ())
    if tests:
        held = _tokenized(tests, base, tokenizer, settings)
    else:
        samples, held = _split(samples, config.get("val_set_size") or 0, seed)
    held = _fitting(held, run.evaluation.eval_sequence_len or run.shapes.sequence_len, run, notes, "evaluation")
    if config.get("shuffle_merged_datasets", True):
        samples = list(samples)
        random.Random(seed).shuffle(samples)
    return _checked(run, samples, held, notes)


def _checked(run: RunSpec, samples: Sequence[Sample], held: Sequence[Sample], notes: Sequence[str]) -> Data:
    if not samples:
        raise VramwiseError("no training sample is left: " + "; ".join(notes or ["the datasets are empty"]))
    if run.evaluation.evaluates and not held:
        empty = bool(run.config.get("test_datasets"))
        raise VramwiseError("no evaluation sample: " + ("its data is empty" if empty else "nothing is held out"))
    return Data(train=samples, evaluation=held, notes=notes)


def digest_of(data: Data) -> str:
    """Return a hash over every token and target in order: equal if training sees the same data."""
    digest = hashlib.sha256()
    for part in (data.train, data.evaluation):
        digest.update(len(part).to_bytes(8, "little"))
        for sample in part:
            digest.update(len(sample).to_bytes(8, "little"))
            digest.update(array("q", sample.input_ids).tobytes())
            digest.update(array("q", sample.labels).tobytes())
    return digest.hexdigest()


def _tokenized(
    blocks: Sequence[Mapping[str, Any]], base: Path, tokenizer: Any, settings: PromptSettings
) -> list[Sample]:
    return [
        sample
        for block in blocks
        for row in read_rows(block, base)
        for sample in samples_of(row, block, tokenizer, settings)
    ]


def _fitting(samples: Sequence[Sample], longest: int, run: RunSpec, notes: list[str], what: str) -> list[Sample]:
    """Return the samples that can be trained on: neither too long nor too short, with targets."""
    strategy = run.config.get("excess_length_strategy", "drop")
    shortest = run.config.get("min_sample_len", _SHORTEST)
    kept, long, short, empty = [], 0, 0, 0
    for sample in samples:
        if len(sample) > longest:
            long += 1
            if strategy == "raise":
                raise VramwiseError(f"a {what} sample has {len(sample)} tokens, sequence_len is {longest}")
            if strategy == "drop":
                continue
            sample = Sample(sample.input_ids[:longest], sample.labels[:longest])
        if len(sample) < shortest:
            short += 1
        elif sample.targets == 0:
            empty += 1
        else:
            kept.append(sample)
    verb = "cut" if strategy == "truncate" else "dropped"
    for count, why in ((long, f"longer than {longest} tokens ({verb})"), (short, "too short"), (empty, "no target")):
        if count:
            notes.append(f"{count} of {len(samples)} {what} samples: {why}")
    return kept


def _split(samples: list[Sample], size: float, seed: int) -> tuple[list[Sample], list[Sample]]:
    """Hold out a share (below 1) or a number of samples, chosen by the seed."""
    if not size:
        return samples, []
    count = round(len(samples) * size) if size < 1 else int(size)
    count = max(1, count) if samples else 0
    if count >= len(samples):
        raise VramwiseError(
            f"val_set_size {size} would hold out {count} of {len(samples)} samples: nothing to train on"
        )
    chosen = set(random.Random(seed).sample(range(len(samples)), count))
    return (
        [sample for index, sample in enumerate(samples) if index not in chosen],
        [samples[index] for index in sorted(chosen)],
    )


def _in_blocks(run: RunSpec, tokenizer: Any) -> tuple[list[Sample], list[Sample]]:
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
