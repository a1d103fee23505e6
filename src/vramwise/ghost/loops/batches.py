"""Shapes of batches: from sample lengths, from widths, or the largest that the run's settings allow.

Does not know the data beyond its lengths. Whether any row of a batch is padded matters as much as its width: padding
makes `sdpa` build a mask and give up grouped queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vramwise.errors import VramwiseError
from vramwise.types import RunSpec


class BatchShape(NamedTuple):
    """A batch: rows, the width they are padded to, and whether any row is shorter than that.

    `tokens`: how many are no padding, where that is known and decides anything (flash attention leaves padding out).
    """

    rows: int
    width: int
    padded: bool
    tokens: int | None = None


Widths = Sequence[int] | Sequence[BatchShape]


def largest(run: RunSpec, *, evaluation: bool = False) -> BatchShape:
    """The largest batch that the settings allow: every row full. Packing evaluates at the training shape."""
    evaluation = evaluation and not run.eval_sample_packing
    rows, longest = _limits(run, evaluation=evaluation)
    if run.packing_rows == "one" and not evaluation:
        return BatchShape(1, rows * longest, False)
    # Packed rows under sdpa or eager carry a block-diagonal mask, as padded ones do.
    masked = run.packing_rows == "micro" and not evaluation
    return BatchShape(rows, _rounded(run, longest), masked)


def from_lengths(
    run: RunSpec, lengths: Sequence[int], *, evaluation: bool = False, are_widths: bool = False
) -> list[BatchShape]:
    """Batches of samples in the given order; packing fills rows, so that one shape stands for all.

    `are_widths`: the numbers are widths of batches, with shorter rows in each.
    """
    if run.eval_sample_packing if evaluation else run.packing_rows != "none":
        return [largest(run, evaluation=evaluation)]
    rows, longest = _limits(run, evaluation=evaluation)
    kept = _within(run, lengths, longest)
    if not kept:
        raise VramwiseError(f"every sample is longer than sequence_len {longest}: nothing would be trained")
    shapes = []
    for start in range(0, len(kept), rows):
        batch = kept[start : start + rows]
        width = _rounded(run, longest if run.pad_to_sequence_len else max(batch))
        padded = are_widths or min(batch) < width
        counts = padded and not are_widths and "flash" in run.attn_implementation
        shapes.append(BatchShape(len(batch), width, padded, sum(batch) if counts else None))
    return shapes


def as_shapes(run: RunSpec, widths: Widths | None, *, evaluation: bool = False) -> list[BatchShape]:
    """Widths as shapes: bare numbers are padded batches where the run's shapes vary, full ones where they do not."""
    rows, _ = _limits(run, evaluation=evaluation)
    return [
        item if isinstance(item, BatchShape) else BatchShape(rows, item, not run.constant_shapes)
        for item in widths or ()
    ]


def _limits(run: RunSpec, *, evaluation: bool) -> tuple[int, int]:
    """Rows of a batch, and the longest row."""
    if not evaluation:
        return run.micro_batch_size, run.sequence_len
    return run.eval_batch_size or run.micro_batch_size, run.eval_sequence_len or run.sequence_len


def _within(run: RunSpec, lengths: Sequence[int], longest: int) -> list[int]:
    """Samples that are too long are dropped, or cut."""
    if run.long_rows == "drop":
        return [length for length in lengths if length <= longest]
    return [min(length, longest) for length in lengths]


def _rounded(run: RunSpec, width: int) -> int:
    multiple = max(run.pad_multiple, 1)
    return -(-width // multiple) * multiple
