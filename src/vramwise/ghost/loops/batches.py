"""Shapes of batches: from sample lengths, from widths, or the largest that the run's settings allow.

Does not know the data beyond its lengths. Whether any row of a batch is padded matters as much as its width: padding
makes `sdpa` build a mask and give up grouped queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vramwise.errors import VramwiseError
from vramwise.types import BY_LABEL, RunSpec


class BatchShape(NamedTuple):
    """A batch: rows, the width they are padded to, and whether any row is shorter than that.

    `tokens`: how many are no padding, where that is known and decides anything (flash attention leaves padding out).
    `labelled`: how many are trained on, where that is known: losses that take those alone hold less than the width.
    """

    rows: int
    width: int
    padded: bool
    tokens: int | None = None
    mismatched: int | None = None  # KTO: the width of the rows for its KL term; None: as the others
    labelled: int | None = None
    mismatched_labelled: int | None = None
    samples: int | None = None  # that stand one behind the other in packed rows, where that is known


Widths = Sequence[int] | Sequence[BatchShape]


# Objectives whose samples are pairs: a chosen row and a rejected one, in one batch.
_PAIRED = frozenset({"dpo", "orpo", "cpo", "reward", "value"})


def rows_a_sample(run: RunSpec) -> int:
    """How many rows of a batch a sample becomes."""
    return 2 if run.objective.kind in _PAIRED else 1


def labels_in(shape: BatchShape) -> int | None:
    """Places that have a label: all real tokens but the first of each row, at most; None: as many as fit."""
    if shape.labelled is not None or shape.tokens is None:
        return shape.labelled
    return shape.tokens - shape.rows


def largest(run: RunSpec, *, evaluation: bool = False) -> BatchShape:
    """The largest batch that the settings allow: every row full. Packed rows are as long in an evaluation."""
    rows, longest = _limits(run, evaluation=evaluation)
    packed = run.evaluation.eval_sample_packing if evaluation else run.shapes.packing_rows != "none"
    longest = run.shapes.sequence_len if packed else longest
    if run.objective.completion_len is not None and run.objective.completion_len >= longest:
        longest += (
            run.objective.completion_len
        )  # nothing is left for prompts: they are taken to be that long themselves
    if run.shapes.packing_rows == "one" and packed:
        return BatchShape(1, rows * longest, False)
    # Packed rows under sdpa or eager carry a block-diagonal mask, as padded ones do.
    masked = run.shapes.packing_rows == "micro" and packed and run.shapes.packed_mask != "none"
    return BatchShape(rows, _rounded(run, longest), masked)


def from_lengths(
    run: RunSpec,
    lengths: Sequence[int],
    *,
    evaluation: bool = False,
    are_widths: bool = False,
    labelled: Sequence[int] | None = None,
) -> list[BatchShape]:
    """Batches of samples in the given order; packing fills rows, so that one shape stands for all.

    Pairs come as two lengths, one after the other. Where completions are generated, the lengths are the prompts'.
    `are_widths`: the numbers are widths of batches, with shorter rows in each. `labelled`: how many tokens of each
    sample are trained on, the last ones.
    """
    if run.evaluation.eval_sample_packing if evaluation else run.shapes.packing_rows != "none":
        return [largest(run, evaluation=evaluation)]
    rows, longest = _limits(run, evaluation=evaluation)
    if run.objective.completion_len is not None:
        lengths = [
            length + run.objective.completion_len for length in lengths for _ in range(run.objective.rows_per_prompt)
        ]
        kept = list(lengths)
    else:
        kept = _within(run, lengths, longest)
    labels = _labels(run, lengths, labelled, longest)
    if not kept:
        raise VramwiseError(f"every sample is longer than sequence_len {longest}: nothing would be trained")
    shapes = []
    for start in range(0, len(kept), rows):
        batch = kept[start : start + rows]
        width = _rounded(run, longest if run.shapes.pad_to_sequence_len else max(batch))
        padded = are_widths or min(batch) < width
        counts = padded and not are_widths and _reads_tokens(run)
        known = sum(labels[start : start + rows]) if labels else None
        shapes.append(BatchShape(len(batch), width, padded, sum(batch) if counts else None, labelled=known))
    return shapes


def _reads_tokens(run: RunSpec) -> bool:
    """Whether anything goes by the real tokens of a padded batch."""
    return "flash" in run.kernels.attn_implementation or goes_by_labels(run)


def goes_by_labels(run: RunSpec) -> bool:
    """Whether the loss takes only tokens that have a label."""
    return run.kernels.loss_kernel in BY_LABEL or run.objective.log_probs in BY_LABEL


def _labels(run: RunSpec, lengths: Sequence[int], labelled: Sequence[int] | None, longest: int) -> list[int]:
    """What is left of each sample's labels once it is cut to measure; nothing where they are not known.

    A row's first token follows nothing: it is never foretold.
    """
    if labelled is None or run.shapes.long_rows != "cut" or not goes_by_labels(run):
        return []
    pairs = zip(lengths, labelled, strict=True)
    return [max(0, min(count - max(0, length - longest), min(length, longest) - 1)) for length, count in pairs]


def as_shapes(run: RunSpec, widths: Widths | None, *, evaluation: bool = False) -> list[BatchShape]:
    """Widths as shapes: bare numbers are padded batches where the run's shapes vary, full ones where they do not."""
    rows, _ = _limits(run, evaluation=evaluation)
    return [
        item if isinstance(item, BatchShape) else BatchShape(rows, item, not run.shapes.constant_shapes)
        for item in widths or ()
    ]


def _limits(run: RunSpec, *, evaluation: bool) -> tuple[int, int]:
    """Rows of a batch, and the longest row."""
    each = rows_a_sample(run)
    if not evaluation:
        return each * run.batch.micro_batch_size, run.shapes.sequence_len
    return each * (
        run.evaluation.eval_batch_size or run.batch.micro_batch_size
    ), run.evaluation.eval_sequence_len or run.shapes.sequence_len


def _within(run: RunSpec, lengths: Sequence[int], longest: int) -> list[int]:
    """Samples that are too long are dropped, or cut; a pair goes with either of its rows."""
    if run.shapes.long_rows == "cut":
        return [min(length, longest) for length in lengths]
    each = rows_a_sample(run)
    samples = [lengths[start : start + each] for start in range(0, len(lengths), each)]
    return [length for sample in samples if max(sample) <= longest for length in sample]


def _rounded(run: RunSpec, width: int) -> int:
    multiple = max(run.shapes.pad_multiple, 1)
    return -(-width // multiple) * multiple
