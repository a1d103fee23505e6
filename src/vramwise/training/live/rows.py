"""The micro-batches of a live trainer: its own dataset through its own sampler and collator, drawn without a trace.

Samples are read by number and collated in this process: no worker, no iterator and no card is used. Random states, the
collator, the trainer and its accelerator are left as they were. Drawing ends after a time, between two batches.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
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
    until = time.monotonic() + seconds
    try:
        loader = getattr(trainer, loader_of)(*([dataset] if loader_of == "get_eval_dataloader" else []))
        batches = list(loader.batch_sampler)
        if hasattr(trainer, "reward_funcs"):  # completions are generated: their limit decides
            numbers = dict.fromkeys(int(number) for batch in batches[:_MOST] for number in batch)
            return _prompts(trainer.processing_class, loader.dataset, list(numbers), until), ""
        found = _collated(loader, batches, until)
    except Exception as error:  # the trainer's own code
        name = type(error).__name__
        return None, f"the dataset could not be drawn from ({name}: {str(error)[:80]}): every row counts as full"
    if not found:
        return None, "the batches have no input_ids: every row counts as full"
    whole = len(found) == len(batches)
    said = f"{len(found):,} of {len(batches):,} micro-batches were drawn, in the order of the sampler"
    tokens = [length for _, rows in found for length in rows]
    return Lengths(
        tokens=tokens,
        drawn=tuple(shape for shape, _ in found),
        whole=whole,
        pairs=found[0][0].rows == 2 * len(batches[0]),
        assumptions=() if whole else (said,),
    ), ""


def _prompts(tokenizer: Any, dataset: Any, numbers: Sequence[int], until: float) -> Lengths | None:
    """Return the lengths of the prompts that completions are generated for."""
    tokens: list[int] = []
    for number in numbers:
        if tokens and time.monotonic() > until:
            break
        prompt = dataset[number]["prompt"]
        if isinstance(prompt, str):
            found = tokenizer(text=prompt)["input_ids"]
        else:
            found = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=True)["input_ids"]
        tokens.append(len(found))
    return Lengths(tokens=tokens, whole=len(tokens) == len(numbers)) if tokens else None


def _collated(loader: Any, batches: Sequence[Any], until: float) -> list[tuple[BatchShape, list[int]]]:
    """Return the shapes and rows of the first batches, and of the one with the longest row if lengths are stored."""
    found: dict[int, tuple[BatchShape, list[int]]] = {}
    chosen = list(range(min(len(batches), _MOST)))
    longest = _longest(loader.dataset)
    if longest is not None:
        chosen = sorted({*chosen, *(place for place, numbers in enumerate(batches) if longest in numbers)})
        chosen.sort(key=lambda place: longest not in batches[place])
    for place in chosen:
        if found and time.monotonic() > until:
            break
        batch = loader.collate_fn([loader.dataset[int(number)] for number in batches[place]])
        shape = _shape(batch)
        if shape is None:
            return []
        rows, each = _rows(batch, shape), len(batches[place])
        if shape.rows == 2 * each:  # pairs: all chosen rows are before the rejected ones
            rows = [rows[number + other] for number in range(each) for other in (0, each)]
        found[place] = (shape, rows)
    return [found[place] for place in sorted(found)]


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
    """Return the shape of a batch of tokens; of pairs in two tensors, that of both together."""
    batch = _named(batch)
    tokens = None if batch is None else batch.get("input_ids")
    if batch is None or tokens is None or getattr(tokens, "ndim", 0) != 2:
        return None
    mask, others = batch.get("attention_mask"), batch.get("KL_input_ids")
    rows, width = (int(size) for size in tokens.shape)
    real = rows * width if mask is None or mask.ndim != 2 else int(mask.sum())
    places = batch.get("position_ids")
    return BatchShape(
        rows,
        width,
        real < rows * width,
        real,
        mismatched=None if others is None else int(others.shape[1]),
        labelled=_labelled(batch, "", tokens.shape),
        mismatched_labelled=None if others is None else _labelled(batch, "KL_", others.shape),
        samples=None if places is None or places.ndim != 2 else int((places == 0).sum()),
    )


def _labelled(batch: Any, start: str, shape: Any) -> int | None:
    """Return how many positions have a label, of which the first of a row never counts; None if nothing says so."""
    labels, mask = batch.get(f"{start}labels"), batch.get(f"{start}completion_mask")
    if labels is not None and labels.shape == shape:
        return int((labels[:, 1:] != _IGNORED).sum())
    return int(mask[:, 1:].sum()) if mask is not None and mask.shape == shape else None


def _named(batch: Any) -> Any:
    """Return a batch as a mapping of tensors; None if it is none."""
    if isinstance(batch, (list, tuple)) and batch and hasattr(batch[0], "shape"):
        return {"input_ids": batch[0]}
    if not hasattr(batch, "get"):
        return None
    if batch.get("chosen_labels") is None:
        return batch
    import torch

    both = [batch.get(f"{which}_attention_mask") for which in ("chosen", "rejected")]
    width = max(int(one.shape[1]) for one in both)
    joined = torch.cat([torch.nn.functional.pad(one, (0, width - one.shape[1])) for one in both])
    return {"input_ids": joined, "attention_mask": joined}


def _rows(batch: Any, shape: BatchShape) -> list[int]:
    mask = _named(batch).get("attention_mask")
    if mask is None or mask.ndim != 2:
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
