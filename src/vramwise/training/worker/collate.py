"""Turns rows into the tensors of one micro-batch: padded to a constant width or a multiple, or packed with positions.

Unpacked rows carry an attention mask. Packed rows carry positions that restart in each sample and no mask: from these,
transformers builds the block-diagonal mask (sdpa, eager, flex) or the sequence bounds of a varlen kernel (flash).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from vramwise.training.worker.order import Row
from vramwise.training.worker.prompts import IGNORED


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
