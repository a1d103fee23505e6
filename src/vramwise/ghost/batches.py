"""Shapes of micro-batches: from sample lengths, from widths, or the most that the run's settings allow.

Does not know the data beyond its lengths. Whether any row of a batch is padded matters as much as its width: padding
makes `sdpa` build a mask and give up grouped queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vramwise.types import RunSpec


class BatchShape(NamedTuple):
    """A micro-batch: rows, the width they are padded to, and whether any row is shorter than that."""

    rows: int
    width: int
    padded: bool


Widths = Sequence[int] | Sequence[BatchShape]


def from_lengths(run: RunSpec, lengths: Sequence[int], *, evaluation: bool = False) -> list[BatchShape]:
    """Micro-batches of samples in the given order; samples longer than the sequence length are cut."""
    rows = (run.eval_batch_size or run.micro_batch_size) if evaluation else run.micro_batch_size
    longest = (run.eval_sequence_len or run.sequence_len) if evaluation else run.sequence_len
    if run.sample_packing and (not evaluation or run.eval_sample_packing):
        return _packed(run, [min(length, longest) for length in lengths], rows, longest)
    shapes = []
    for start in range(0, len(lengths), rows):
        batch = [min(length, longest) for length in lengths[start : start + rows]]
        width = _rounded(run, longest if run.pad_to_sequence_len else max(batch))
        shapes.append(BatchShape(len(batch), width, min(batch) < width))
    return shapes


def _packed(run: RunSpec, lengths: Sequence[int], rows: int, longest: int) -> list[BatchShape]:
    """Packing fills whole rows; how many there are follows from the tokens."""
    count = max(1, -(-sum(lengths) // longest))
    shape = BatchShape(1, rows * longest, False) if run.packing_rows == "one" else BatchShape(rows, longest, False)
    return [shape] * max(1, -(-count // rows))


def _rounded(run: RunSpec, width: int) -> int:
    multiple = max(run.pad_multiple, 1)
    return -(-width // multiple) * multiple


def largest(run: RunSpec, *, evaluation: bool = False) -> BatchShape:
    """The largest batch that the settings allow: every row full."""
    rows = (run.eval_batch_size or run.micro_batch_size) if evaluation else run.micro_batch_size
    width = (run.eval_sequence_len or run.sequence_len) if evaluation else run.sequence_len
    packed = run.sample_packing and (not evaluation or run.eval_sample_packing)
    if packed and run.packing_rows == "one":
        return BatchShape(1, rows * width, False)
    return BatchShape(rows, _rounded(run, width), False)


def as_shapes(run: RunSpec, widths: Widths | None, *, evaluation: bool = False) -> list[BatchShape]:
    """Widths as shapes: bare numbers are padded batches where the run's shapes vary, full ones where they do not."""
    rows = (run.eval_batch_size or run.micro_batch_size) if evaluation else run.micro_batch_size
    padded = not run.constant_shapes
    return [item if isinstance(item, BatchShape) else BatchShape(rows, item, padded) for item in widths or ()]
