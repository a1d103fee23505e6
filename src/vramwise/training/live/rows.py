"""The micro-batches of a live trainer: its own dataset through its own sampler and collator, drawn without a trace.

Samples are read by number and collated in this process: no worker, no iterator and no card is used. Random states, the
collator, the trainer and its accelerator are left as they were. Drawing ends after a time, between two batches.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from vramwise.ghost.loops.batches import BatchShape
from vramwise.variants.lengths import NO_DATA, Data, Lengths

_SECONDS = 1.0
_EVAL_SECONDS = 0.4
# More are never simulated.
_MOST = 256
_IGNORED = -100


def data_of(trainer: Any) -> Data:
    """Return the lengths of the trainer's rows; without them, a note says why."""
    with _unchanged(trainer):
        train, why = _drawn(trainer, "get_train_dataloader", trainer.train_dataset, _SECONDS)
        evaluates = getattr(trainer.args, "eval_strategy", "no") != "no"
        held_out = getattr(trainer, "eval_dataset", None) if evaluates else None
        one = next(iter(held_out.values()), None) if isinstance(held_out, dict) else held_out
        evaluation, _ = _drawn(trainer, "get_eval_dataloader", one, _EVAL_SECONDS)
    notes = (why,) if why and train is None else ()
    return replace(NO_DATA, train=train, evaluation=evaluation, notes=notes)


def lengths_of(batch: Any) -> Lengths | None:
    """Return the lengths of the rows of one batch; None if it has no tokens."""
    shape = _shape(batch)
    return None if shape is None else Lengths(tokens=_rows(batch, shape), drawn=(shape,), whole=False)


def _drawn(trainer: Any, loader_of: str, dataset: Any, seconds: float) -> tuple[Lengths | None, str]:
    if dataset is None or not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        return None, "" if dataset is None else "the dataset is a stream, which is not read: every row counts as full"
    if getattr(trainer, "_step_generates", False) or hasattr(trainer, "reward_funcs"):
        return None, ""  # completions are generated: their limit decides
    until = time.monotonic() + seconds
    try:
        loader = getattr(trainer, loader_of)(*([dataset] if loader_of == "get_eval_dataloader" else []))
        batches = list(loader.batch_sampler)
        shapes, rows = _collated(loader, batches, until)
    except Exception as error:  # the trainer's own code
        name = type(error).__name__
        return None, f"the dataset could not be drawn from ({name}: {str(error)[:80]}): every row counts as full"
    if not shapes:
        return None, "the batches have no input_ids: every row counts as full"
    whole = len(shapes) == len(batches)
    said = f"{len(shapes):,} of {len(batches):,} micro-batches were drawn, in the order of the sampler"
    tokens = [length for one in rows for length in one]
    return Lengths(tokens=tokens, drawn=tuple(shapes), whole=whole, assumptions=() if whole else (said,)), ""


def _collated(loader: Any, batches: Sequence[Any], until: float) -> tuple[list[BatchShape], list[list[int]]]:
    """Return the shapes of the first batches and, where lengths are stored, of the one with the longest row."""
    shapes, rows = [], []
    chosen = list(range(min(len(batches), _MOST)))
    longest = _longest(loader.dataset)
    if longest is not None:
        widest = next((place for place, numbers in enumerate(batches) if longest in numbers), None)
        chosen = [*([] if widest is None else [widest]), *(place for place in chosen if place != widest)]
    for place in chosen:
        if shapes and time.monotonic() > until:
            break
        batch = loader.collate_fn([loader.dataset[int(number)] for number in batches[place]])
        shape = _shape(batch)
        if shape is None:
            return [], []
        shapes.append((place, shape))
        rows.append((place, _rows(batch, shape)))
    in_order = sorted(range(len(shapes)), key=lambda number: shapes[number][0])
    return [shapes[number][1] for number in in_order], [rows[number][1] for number in in_order]


def _longest(dataset: Any) -> int | None:
    """Return the number of the longest row of a tokenised table, from its offsets alone."""
    try:
        import pyarrow.compute as pc

        if dataset._indices is not None:
            return None
        lengths = pc.list_value_length(dataset.data.column("input_ids"))
        return int(pc.index(lengths, pc.max(lengths)).as_py())
    except (ImportError, AttributeError, KeyError, TypeError, ValueError):
        return None


def _shape(batch: Any) -> BatchShape | None:
    """Return the shape of a batch of tokens: as it is, or the completions of a preference pair."""
    if isinstance(batch, (list, tuple)) and batch and hasattr(batch[0], "shape"):
        batch = {"input_ids": batch[0]}
    tokens = batch.get("input_ids") if isinstance(batch, Mapping) or hasattr(batch, "get") else None
    if tokens is None or getattr(tokens, "ndim", 0) != 2:
        return None
    mask, labels = batch.get("attention_mask"), batch.get("labels")
    rows, width = (int(size) for size in tokens.shape)
    real = int(mask.sum()) if getattr(mask, "ndim", 0) == 2 else rows * width
    labelled = int((labels[:, 1:] != _IGNORED).sum()) if getattr(labels, "shape", None) == tokens.shape else None
    places = batch.get("position_ids")
    samples = int((places == 0).sum()) if getattr(places, "ndim", 0) == 2 else None
    return BatchShape(rows, width, real < rows * width, real, labelled=labelled, samples=samples)


def _rows(batch: Any, shape: BatchShape) -> list[int]:
    mask = batch.get("attention_mask") if hasattr(batch, "get") else None
    if getattr(mask, "ndim", 0) != 2:
        return [shape.width] * shape.rows
    return [max(1, int(count)) for count in mask.sum(-1).tolist()]


@contextmanager
def _unchanged(trainer: Any) -> Iterator[None]:
    """Put back random states, and the attributes of the trainer, its collator and its accelerator."""
    import numpy as np
    import torch

    collator = getattr(trainer, "data_collator", None)
    kept = [(one, dict(vars(one))) for one in (trainer, collator, trainer.accelerator) if hasattr(one, "__dict__")]
    lists = [(one, list(one)) for one in (getattr(trainer.accelerator, "_dataloaders", None),) if one is not None]
    generators = [one for _, held in kept for one in held.values() if isinstance(one, torch.Generator)]
    states = [(one, one.get_state()) for one in generators]
    python, numpy_state, torch_state = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy_state)
        torch.set_rng_state(torch_state)
        for generator, state in states:
            generator.set_state(state)
        for listed, items in lists:
            listed[:] = items
        for one, held in kept:
            vars(one).clear()
            vars(one).update(held)
