"""For a run whose rows nobody described: how long they may be at most for it to fit."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from vramwise.errors import VramwiseError
from vramwise.opening.subject import Subject
from vramwise.types import Origin
from vramwise.variants.capacity import SHORTEST_PART, follows_data, mixed_runs, rows_doubt
from vramwise.variants.doubts import Margin, doubts_of, margin_of
from vramwise.variants.effort import REMEDY, is_large
from vramwise.variants.prediction import Prediction
from vramwise.variants.verdict import Verdict, without_rows

# Without a limit, rows of these lengths are tried, up to what the model takes.
_LENGTHS = tuple(128 * quarters * 2**power // 4 for power in range(12) for quarters in (4, 5, 6, 7))
_TRIES = 3
# The share of the room for rows that full ones should take, as mixed ones take more.
_AIMED = 0.8


def judged(subject: Subject, prediction: Prediction, limit_bytes: int | None = None) -> Verdict:
    """Return the verdict of every interface: a run that fits with shorter rows than assumed may not fit."""
    return prediction.verdict(rows_that_fit(subject, prediction, limit_bytes))


def rows_that_fit(subject: Subject, prediction: Prediction, limit_bytes: int | None = None) -> int | None:
    """Return a length up to which rows fit, full and mixed, for a run that may not fit with rows as long as assumed.

    It is about the longest, of eighths of the longest rows that the settings allow. Returns None if the lengths are
    known, if the run fits anyway, if even the shortest rows do not fit, or if there is no upper bound anyway.
    """
    if prediction.bounds is not None and prediction.bounds.upper_bytes is None:  # whatever the rows
        return None
    if not prediction.full_rows or (prediction.memory_fits is True and not prediction.rows_unlimited):
        return None
    capacity, assumed, lengths = prediction.capacity_bytes, subject.run.shapes.sequence_len, _lengths(prediction)
    held = without_rows(prediction)
    if capacity is None or not lengths or held > capacity:
        return None
    since = subject.effort.spent
    # Memory grows roughly linearly with the rows: try where it reaches the card's size, then between that and less.
    low, high = (0, held), (assumed, _with_margin(prediction.most_bytes, prediction.margin))
    least, most = 0, len(lengths) if prediction.memory_fits is True else bisect_left(lengths, assumed)
    for more in range(_TRIES, 0, -1):
        each = max(1.0, (high[1] - low[1]) / (high[0] - low[0]))
        reached = bisect_right(lengths, low[0] + _AIMED * (capacity - low[1]) / each) - 1
        last = more == 1 or is_large(prediction.short_timeline) or not subject.effort.leaves(REMEDY, since)
        tried = least if last else max(least, min(most - 1, reached))
        needed = _needed(subject, lengths[tried], capacity, limit_bytes)
        if needed is not None and needed <= capacity:
            return lengths[tried]
        if tried == least:
            return None
        point = (lengths[tried], needed or 0)
        if more == _TRIES and prediction.mixed_bytes and _left_of(point, high, lengths[least]) > capacity:
            return None
        most = bisect_right(lengths, lengths[tried] // 2)  # to be sure of the next one
        high = (lengths[tried], max(needed or 0, capacity))
    return None


def _left_of(point: tuple[int, int], other: tuple[int, int], length: int) -> float:
    """Return what shorter rows need at least: memory grows linearly or faster, so no less than a line through both."""
    (x, y), (wider, more) = point, other
    return y - (x - length) * (more - y) / (wider - x) if y and wider > x else 0.0


def _lengths(prediction: Prediction) -> Sequence[int]:
    """Return the lengths to try, rising; rows of prompts and completions have at least the completions."""
    run = prediction.run
    longest, least = run.shapes.sequence_len, run.objective.completion_len or 0
    if prediction.rows_unlimited:
        return [length for length in _LENGTHS if length <= max(longest, prediction.model.max_position_embeddings)]
    tried = [least + (longest - least) * part // SHORTEST_PART for part in range(1, SHORTEST_PART)]
    return [length for length in tried if length > max(1, least)]


def _needed(subject: Subject, length: int, capacity_bytes: int, limit_bytes: int | None) -> int | None:
    """Return what the run needs with rows up to a length, with its margin; mixed ones that end with full ones."""
    run, evaluated = subject.run, subject.run.evaluation.eval_sequence_len
    origin = Origin(kind="derived", why="a limit that is tried")
    shorter = run.changed(
        sequence_len=length,
        eval_sequence_len=None if evaluated is None else min(evaluated, length),
        origins={**run.origins, "sequence_len": origin},
    )
    made = subject.with_run(shorter)
    try:
        if subject.model is None or not follows_data(run):
            found = made.prediction(limit_bytes=limit_bytes)
            return None if found.memory_fits is False else _with_margin(found.most_bytes, found.margin)
        known = tuple(doubts_of(shorter, subject.model))
        least = margin_of((rows_doubt(shorter, (1,)), *known))
        drawn = mixed_runs(shorter, subject.model, subject.simulations, capacity_bytes, least.more)
        mixed = [one.report.highest_reserved_bytes for one in drawn]
        if not mixed:
            return None
        return _with_margin(max(mixed), margin_of((rows_doubt(shorter, mixed), *known)))
    except VramwiseError:
        return None


def _with_margin(size_bytes: int, margin: Margin) -> int:
    return int(size_bytes * (1 + margin.more))
