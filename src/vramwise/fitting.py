"""A run that does not fit: with how short rows it would, and which changes would make it fit, each predicted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vramwise.attempting import attempt
from vramwise.errors import VramwiseError
from vramwise.subject import Subject
from vramwise.types import Change, RunSpec
from vramwise.variants import changes
from vramwise.variants.attempt import Attempt
from vramwise.variants.lengths import Lengths
from vramwise.variants.prediction import Prediction
from vramwise.variants.verdict import verdict_of

# Rows are tried in eighths of sequence_len: data whose longest row is shorter than one would not be given so many.
_PARTS = 8
# Remedies that are named, and predictions that finding them may take.
_NAMED = 3
_TRIED = 10
# Where the run itself has more events than this, each further prediction takes half a second.
_MOST_EVENTS = 250_000
# What keeps the result, at no price and at some; then the same mathematics in other kernels.
_SINGLE: tuple[changes.Builder, ...] = (
    changes.expandable_segments,
    changes.equal_eval_batch,
    changes.fuse_loss,
    changes.checkpoint_activations,
)
# What changes the training, where nothing else is enough.
_OTHERWISE: tuple[changes.Builder, ...] = (changes.eight_bit_optimizer, changes.quantize_base)


def rows_that_fit(subject: Subject, prediction: Prediction, limit_bytes: int | None = None) -> int | None:
    """The longest rows with which a run fits that does not with full ones, in eighths of sequence_len.

    None where rows are as long as they are taken to be, and where even the shortest are too long.
    """
    if prediction.fits is not False or not prediction.full_rows or _too_long(prediction):
        return None
    longest = subject.run.sequence_len
    if not _fits_with(subject, longest // _PARTS, limit_bytes):
        return None
    fitting, failing = 1, _PARTS
    while failing - fitting > 1:
        middle = (fitting + failing) // 2
        if _fits_with(subject, longest * middle // _PARTS, limit_bytes):
            fitting = middle
        else:
            failing = middle
    return longest * fitting // _PARTS


def _too_long(prediction: Prediction) -> bool:
    return len(prediction.short_timeline.events) > _MOST_EVENTS


def _fits_with(subject: Subject, width: int, limit_bytes: int | None) -> bool:
    """Whether it fits with rows of at most `width` tokens, of which each batch has one, and shorter ones beside it."""
    if width < 2:
        return False
    run = subject.run
    train, evaluation = [Lengths(tokens=_batch(width, rows)) for rows in (run.micro_batch_size, run.eval_batch_size)]
    try:
        return subject.forecast(lengths=train, eval_lengths=evaluation, limit_bytes=limit_bytes).fits is True
    except VramwiseError:
        return False


def _batch(width: int, rows: int | None) -> Sequence[int]:
    return [width, *[width - 1] * (min(rows or 1, 4096) - 1)]


def remedies(subject: Subject, prediction: Prediction, limit_bytes: int | None = None) -> list[Attempt]:
    """Changes that make it fit, the least intrusive first; empty where none that was tried does."""
    if prediction.fits is not False or _too_long(prediction):
        return []
    found: list[Attempt] = []
    for count, wanted in enumerate(_candidates(subject.run)):
        if count >= _TRIED or len(found) == _NAMED:
            break
        roomy = [one for one in found if _roomy(one)]
        if roomy and (len(wanted) > 1 or not _gentle(wanted)):
            break
        if any(_kinds(one.changes) <= _kinds(wanted) for one in roomy):
            continue  # part of it is enough
        tried = attempt(subject, *wanted, limit_bytes=limit_bytes)
        if tried.fits:
            found.append(tried)
    return sorted(found, key=lambda one: not _roomy(one))


def _roomy(tried: Attempt) -> bool:
    """Whether it fits with something to spare."""
    return tried.prediction is not None and verdict_of(tried.prediction).kind == "fits"


def _gentle(wanted: Sequence[Change]) -> bool:
    return all(change.effect != "changes" for change in wanted)


def _kinds(wanted: Sequence[Change]) -> set[str]:
    return {change.id for change in wanted}


def _candidates(run: RunSpec) -> Iterator[tuple[Change, ...]]:
    """Single changes, smaller micro-batches, all that keep the result together, then what changes the training."""
    single = [change for build in _SINGLE if (change := build(run)) is not None and not _larger_eval(run, change)]
    yield from ((change,) for change in single)
    micro = list(changes.smaller_micro_batches(run))
    yield from ((change,) for change in _spread(micro))
    least = [change for change in single if change.id != "equal-eval-batch"] + micro[-1:]
    if len(least) > 1:
        yield tuple(least)
    for build in _OTHERWISE:
        change = build(run)
        if change is not None:
            yield (change,)
            yield (*least, change)


def _spread(micro: Sequence[Change]) -> Sequence[Change]:
    """The largest, one in the middle and the smallest: each step down is a prediction."""
    return micro if len(micro) <= 3 else [micro[0], micro[len(micro) // 2], micro[-1]]


def _larger_eval(run: RunSpec, change: Change) -> bool:
    """An evaluation at a smaller batch than training's needs no remedy."""
    return change.id == "equal-eval-batch" and (run.eval_batch_size or 0) < run.micro_batch_size
