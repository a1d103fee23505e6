"""Shapes of batches: from sample lengths, from widths, or the largest that the run's settings allow.

Knows only the lengths of the data. Whether any row of a batch is padded matters as much as its width: with padding,
`sdpa` builds a mask and does not use grouped queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vramwise.errors import VramwiseError
from vramwise.types import BY_LABEL, RunSpec


class BatchShape(NamedTuple):
    """A batch: rows, the width they are padded to, and whether any row is shorter than that.

    `tokens`: how many are not padding, if known and relevant (flash attention skips padding). `labelled`: how many are
    trained on, if known: losses that use only those need less memory.
    """

    rows: int
    width: int
    padded: bool
    tokens: int | None = None
    mismatched: int | None = None  # KTO: the width of the rows for its KL term; None: like the others
    labelled: int | None = None
    mismatched_labelled: int | None = None
    samples: int | None = None  # samples concatenated in packed rows, if known


Widths = Sequence[int] | Sequence[BatchShape]


# Objectives whose samples are pairs: a chosen and a rejected row in one batch.
_PAIRED = frozenset({"dpo", "orpo", "cpo", "reward", "value"})


def rows_a_sample(run: RunSpec) -> int:
    """Return how many rows of a batch one sample becomes."""
    return 2 if run.objective.kind in _PAIRED else 1


def labels_in(shape: BatchShape) -> int | None:
    """Return how many positions have a label: at most all real tokens except the first of each row.

    None: unknown, as many as fit.
    """
    if shape.labelled is not None or shape.tokens is None:
        return shape.labelled
    return shape.tokens - shape.rows


def largest(run: RunSpec, *, evaluation: bool = False) -> BatchShape:
    """Return the largest batch that the settings allow, with all rows full.

    Packed rows have the same length in an evaluation.
    """
    rows, longest = _limits(run, evaluation=evaluation)
    packed = run.evaluation.eval_sample_packing if evaluation else run.shapes.packing_rows != "none"
    longest = run.shapes.sequence_len if packed else longest
    if run.objective.completion_len is not None and run.objective.completion_len >= longest:
        longest += (
            run.objective.completion_len
        )  # no room is left for prompts: they are assumed to be as long as completions
    if run.shapes.packing_rows == "one" and packed:
        return BatchShape(1, rows * longest, False)
    # Packed rows under sdpa or eager have a block-diagonal mask, like padded ones.
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
    """Return the batches of samples in the given order; with packing, which fills rows, one shape represents all.

    Pairs are two consecutive lengths. If completions are generated, the lengths are those of the prompts. `are_widths`:
    the numbers are widths of batches with shorter rows in each. `labelled`: how many tokens of each sample, counted
    from its end, are trained on. Raises VramwiseError if every sample is too long.
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
    """Return whether the number of real tokens in a padded batch matters."""
    return "flash" in run.kernels.attn_implementation or goes_by_labels(run)


def goes_by_labels(run: RunSpec) -> bool:
    """Return whether the loss uses only tokens with a label."""
    return run.kernels.loss_kernel in BY_LABEL or run.objective.log_probs in BY_LABEL


def _labels(run: RunSpec, lengths: Sequence[int], labelled: Sequence[int] | None, longest: int) -> list[int]:
    """Return how many labels remain in each sample after truncation; empty if unknown.

    The first token of a row is never a prediction target.
    """
    if labelled is None or run.shapes.long_rows != "cut" or not goes_by_labels(run):
        return []
    pairs = zip(lengths, labelled, strict=True)
    return [max(0, min(count - max(0, length - longest), min(length, longest) - 1)) for length, count in pairs]


def as_shapes(run: RunSpec, widths: Widths | None, *, evaluation: bool = False) -> list[BatchShape]:
    """Return widths as shapes: numbers become padded batches if the run's shapes vary, otherwise full ones."""
    rows, _ = _limits(run, evaluation=evaluation)
    return [
        item if isinstance(item, BatchShape) else BatchShape(rows, item, not run.shapes.constant_shapes)
        for item in widths or ()
    ]


def _limits(run: RunSpec, *, evaluation: bool) -> tuple[int, int]:
    """Return the rows of a batch, and the length of the longest row."""
    each = rows_a_sample(run)
    if not evaluation:
        return each * run.batch.micro_batch_size, run.shapes.sequence_len
    return each * (
        run.evaluation.eval_batch_size or run.batch.micro_batch_size
    ), run.evaluation.eval_sequence_len or run.shapes.sequence_len


def _within(run: RunSpec, lengths: Sequence[int], longest: int) -> list[int]:
    """Return the lengths with samples that are too long dropped or cut; a pair is dropped with either of its rows."""
    if run.shapes.long_rows == "cut":
        return [min(length, longest) for length in lengths]
    each = rows_a_sample(run)
    samples = [lengths[start : start + each] for start in range(0, len(lengths), each)]
    return [length for sample in samples if max(sample) <= longest for length in sample]


def _rounded(run: RunSpec, width: int) -> int:
    multiple = max(run.shapes.pad_multiple, 1)
    return -(-width // multiple) * multiple
