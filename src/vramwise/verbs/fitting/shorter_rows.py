"""For a run that does not fit: how short its rows would have to be."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from vramwise.errors import VramwiseError
from vramwise.subject import Subject
from vramwise.variants.effort import REMEDY, is_large
from vramwise.variants.lengths import Lengths
from vramwise.variants.prediction import Prediction

# Rows are tried in eighths of sequence_len. Shorter data would not be trained with such a sequence_len.
_PARTS = 8
# Phases whose tensors do not depend on the rows, except for the batches: at most so many bytes per token (ids, mask,
# labels, positions, for each completion).
_WITHOUT_ROWS = ("load", "optimizer")
_BYTES_A_TOKEN = 128


def rows_that_fit(
    subject: Subject,
    prediction: Prediction,
    limit_bytes: int | None = None,
    *,
    most: int = REMEDY,
    since: int | None = None,
) -> int | None:
    """Return the longest rows, in eighths of sequence_len, with which a run fits that does not fit with full rows.

    Returns None if full rows are not an assumption, if even the shortest rows do not fit, or if there is no effort
    left. `most`: the effort to spend, beyond the run itself or since `since`. If only the shortest rows could be tried,
    returns those.
    """
    if prediction.memory_fits is not False or not prediction.full_rows or _too_long(prediction):
        return None
    if _too_large_without_rows(prediction):
        return None
    if not subject.effort.leaves(most, since):
        return None
    longest, capacity = subject.run.shapes.sequence_len, prediction.capacity_bytes or 0
    least = _with_rows(subject, longest // _PARTS, limit_bytes)
    if least is None or least.memory_fits is not True:
        return None
    # Memory grows roughly linearly with the rows: start where it reaches the card's size, then go down step by step.
    lowest, highest = (one.needs.highest_reserved_bytes for one in (least, prediction))
    share = (capacity - lowest) / max(1, highest - lowest)
    part = max(1, min(_PARTS - 1, ceil(1 + (_PARTS - 1) * share)))
    while part > 1 and subject.effort.leaves(most, since):
        tried = _with_rows(subject, longest * part // _PARTS, limit_bytes)
        if tried is not None and tried.memory_fits:
            return longest * part // _PARTS
        part -= 1
    return longest // _PARTS


def _too_long(prediction: Prediction) -> bool:
    return is_large(prediction.short_timeline)


def _too_large_without_rows(prediction: Prediction) -> bool:
    """Return whether weights, gradients and optimizer states alone exceed the card."""
    run = prediction.run
    tokens = run.batch.micro_batch_size * run.batch.gradient_accumulation_steps * run.shapes.sequence_len
    held = [peak.peak_allocated_bytes for peak in prediction.needs.phases if peak.phase in _WITHOUT_ROWS]
    return max(held, default=0) - tokens * _BYTES_A_TOKEN > (prediction.capacity_bytes or 0)


def _with_rows(subject: Subject, width: int, limit_bytes: int | None) -> Prediction | None:
    """Predict the run with one row of `width` tokens in each batch and slightly shorter ones beside it."""
    if width < 2:
        return None
    run = subject.run
    train, evaluation = [
        Lengths(tokens=_batch(width, rows)) for rows in (run.batch.micro_batch_size, run.evaluation.eval_batch_size)
    ]
    try:
        return subject.prediction(lengths=train, eval_lengths=evaluation, limit_bytes=limit_bytes)
    except VramwiseError:
        return None


def _batch(width: int, rows: int | None) -> Sequence[int]:
    return [width, *[width - 1] * (min(rows or 1, 4096) - 1)]
