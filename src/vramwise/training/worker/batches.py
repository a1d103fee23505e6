"""Rows in the order of each epoch, and as the tensors of one micro-batch.

The order depends only on seed and epoch, not on micro-batch or number of ranks. An epoch is filled up to whole
micro-batches on every rank with a blank row (no target, so no loss and no gradient). Trainers usually repeat or drop
samples there, which makes the result depend on how a batch is divided.

Rows are padded to a constant width or a multiple, or packed with positions. Unpacked rows carry an attention mask.
Packed rows carry positions that restart in each sample and no mask: from these, transformers builds the block-diagonal
mask (sdpa, eager, flex) or the sequence bounds of a varlen kernel (flash).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch.utils.data import Dataset, Sampler

from vramwise.training.worker.prompts import IGNORED, Sample, make_sample

Row = Sequence[Sample]  # one sample, or several that are packed together
_GROUPED_BATCHES = 50  # lengths are sorted within this many effective batches, as transformers does


class Rows(Dataset[Row]):
    """Rows by number; the number after the last one is the blank row."""

    def __init__(self, rows: Sequence[Row], *, pad_id: int) -> None:
        self._rows = rows
        self._blank: Row = (blank(pad_id),)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Row:
        return self._rows[index] if index < len(self._rows) else self._blank

    def lengths(self) -> list[int]:
        """Return the number of tokens in each row."""
        return [sum(map(len, row)) for row in self._rows]


def blank(pad_id: int) -> Sample:
    """Return a sample without targets."""
    sample = make_sample([([pad_id], False)])
    assert all(label == IGNORED for label in sample.labels)
    return sample


class EpochOrder(Sampler[int]):
    """The row numbers of one epoch."""

    def __init__(
        self,
        rows: int,
        *,
        multiple: int,
        seed: int,
        shuffle: bool = True,
        lengths: Sequence[int] | None = None,
        effective_batch: int = 1,
        by_torch: bool = False,
    ) -> None:
        self._rows = rows
        self._filled = multiple * -(-rows // multiple)
        self._seed = seed
        self._by_torch = by_torch
        self._shuffle = shuffle
        self._lengths = lengths
        self._group = _GROUPED_BATCHES * effective_batch
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch; called by the training loop before each one."""
        self._epoch = epoch

    def __len__(self) -> int:
        return self._filled

    def __iter__(self) -> Iterator[int]:
        order = list(range(self._rows))
        if self._shuffle and self._by_torch:
            order = drawn_by_torch(self._rows, self._seed + self._epoch)
        elif self._shuffle:
            random.Random(f"{self._seed}/{self._epoch}").shuffle(order)
        if self._lengths is not None:
            order = _grouped(order, self._lengths, self._group)
        yield from order
        yield from [self._rows] * (self._filled - self._rows)


def drawn_by_torch(rows: int, seed: int) -> list[int]:
    """Return the order of accelerate's seedable sampler, which transformers' Trainer uses."""
    found: list[int] = torch.randperm(rows, generator=torch.Generator().manual_seed(seed)).tolist()
    return found


def _grouped(order: Sequence[int], lengths: Sequence[int], size: int) -> list[int]:
    groups = [order[start : start + size] for start in range(0, len(order), size)]
    return [row for group in groups for row in sorted(group, key=lambda number: -lengths[number])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collator:
    """Creates micro-batches. `packing` as `RunSpec.packing_rows`: "one" joins the rows of a batch into a single one."""

    pad_id: int
    pad_multiple: int
    packing: Literal["none", "one", "micro"] = "none"

    def __call__(self, rows: Sequence[Row]) -> dict[str, torch.Tensor]:
        """Return one micro-batch."""
        width = _rounded(max(sum(map(len, row)) for row in rows), self.pad_multiple)
        packed = self.packing != "none"
        batch = [self._packed(row, width) if packed else self._padded(row, width) for row in rows]
        names = ("input_ids", "labels", "position_ids" if packed else "attention_mask")
        tensors = {
            name: torch.tensor([row[index] for row in batch], dtype=torch.long) for index, name in enumerate(names)
        }
        if self.packing == "one":
            return {name: tensor.reshape(1, -1) for name, tensor in tensors.items()}
        return tensors

    def _padded(self, row: Row, width: int) -> tuple[list[int], list[int], list[int]]:
        (sample,) = row
        padding = width - len(sample)
        return (
            [*sample.input_ids, *[self.pad_id] * padding],
            [*sample.labels, *[IGNORED] * padding],
            [1] * len(sample) + [0] * padding,
        )

    def _packed(self, row: Row, width: int) -> tuple[list[int], list[int], list[int]]:
        """Return a packed row. Padding counts as one more sample: it attends only to itself and has no target."""
        ids = [token for sample in row for token in sample.input_ids]
        labels = [label for sample in row for label in sample.labels]
        positions = [position for sample in row for position in range(len(sample))]
        padding = width - len(ids)
        return [*ids, *[self.pad_id] * padding], [*labels, *[IGNORED] * padding], [*positions, *range(padding)]


def _rounded(tokens: int, multiple: int) -> int:
    return multiple * -(-tokens // multiple)
