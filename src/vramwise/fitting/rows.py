"""A run that does not fit: with how short rows it would, and which changes would make it fit, each predicted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil

from vramwise.attempting import attempt
from vramwise.errors import VramwiseError
from vramwise.subject import Subject
from vramwise.types import Change, RunSpec
from vramwise.variants import changes
from vramwise.variants.attempt import Attempt
from vramwise.variants.lengths import Lengths
from vramwise.variants.prediction import Prediction

# Rows are tried in eighths of sequence_len: data whose longest row is shorter than one would not be given so many.
_PARTS = 8
# Remedies that are named, and predictions that finding them may take.
_NAMED = 3
_TRIED = 6
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
    longest, capacity = subject.run.sequence_len, prediction.capacity_bytes or 0
    least = _with_rows(subject, longest // _PARTS, limit_bytes)
    if least is None or least.fits is not True:
        return None
    # Memory grows about evenly with the rows: where it meets the card is tried, and then a step less at a time.
    lowest, highest = (one.needs.highest_reserved_bytes for one in (least, prediction))
    share = (capacity - lowest) / max(1, highest - lowest)
    part = max(1, min(_PARTS - 1, ceil(1 + (_PARTS - 1) * share)))
    while part > 1:
        tried = _with_rows(subject, longest * part // _PARTS, limit_bytes)
        if tried is not None and tried.fits:
            break
        part -= 1
    return longest * part // _PARTS


def _too_long(prediction: Prediction) -> bool:
    return len(prediction.short_timeline.events) > _MOST_EVENTS


def _with_rows(subject: Subject, width: int, limit_bytes: int | None) -> Prediction | None:
    """With rows of at most `width` tokens, of which each batch has one, and shorter ones beside it."""
    if width < 2:
        return None
    run = subject.run
    train, evaluation = [Lengths(tokens=_batch(width, rows)) for rows in (run.micro_batch_size, run.eval_batch_size)]
    try:
        return subject.forecast(lengths=train, eval_lengths=evaluation, limit_bytes=limit_bytes)
    except VramwiseError:
        return None


def _batch(width: int, rows: int | None) -> Sequence[int]:
    return [width, *[width - 1] * (min(rows or 1, 4096) - 1)]


def remedies(subject: Subject, prediction: Prediction, limit_bytes: int | None = None) -> list[Attempt]:
    """Changes that make it fit, the least intrusive first; empty where none that was tried does."""
    if prediction.fits is not False or _too_long(prediction):
        return []
    found: list[Attempt] = []
    promising = (wanted for wanted in _candidates(subject.run) if _could_help(wanted, prediction))
    for count, wanted in enumerate(promising):
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


def _could_help(wanted: Sequence[Change], prediction: Prediction) -> bool:
    """Whether all that the changes can save at the peak is enough: a prediction that must fail is not made."""
    needs, run = prediction.needs, prediction.run
    held = needs.breakdown_bytes
    passing = sum(held.get(name, 0) for name in ("activations", "logits", "temporary", "data"))
    saved = needs.idle_bytes
    for change in wanted:
        if change.id == "fuse-loss":
            saved += held.get("logits", 0) + held.get("temporary", 0)
        elif change.id == "checkpoint-activations":
            saved += held.get("activations", 0) + held.get("temporary", 0)
        elif change.id == "smaller-micro-batch" and needs.peak_phase != "eval":
            saved += passing - passing * change.fields["micro_batch_size"] // run.micro_batch_size
        elif change.id != "expandable-segments":
            return True  # what it saves is not told by what is held
    return saved >= needs.peak_reserved_bytes - (prediction.capacity_bytes or 0)


def _roomy(tried: Attempt) -> bool:
    """Whether it fits with something to spare."""
    return tried.prediction is not None and tried.prediction.verdict().kind == "fits"


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
