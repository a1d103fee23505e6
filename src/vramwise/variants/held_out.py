"""Separates the samples that a run trains on from those it evaluates on, if it holds out part of its data."""

from __future__ import annotations

from dataclasses import replace

from vramwise.types import RunSpec, Schedule
from vramwise.variants.lengths import Data, Lengths
from vramwise.variants.shuffling import numpy_permutation

# An arbitrary seed, for runs that draw differently each time.
_ANY_SEED = 42


def divided(data: Data, run: RunSpec, schedule: Schedule) -> Data:
    """Return the data with its held-out samples separated, as the trainer draws them.

    Unchanged if nothing is held out, if the evaluation has its own data, or if the number of samples is unknown. If
    every run draws differently, one possible draw is used for training, and evaluation without packing uses all
    samples, because any of them may be drawn.
    """
    train = data.train
    if train is None or data.evaluation is not train or not schedule.held_out or not train.whole or train.packed:
        return data
    drawn = _drawn(train, run, schedule)
    count = schedule.held_out_of(len(drawn))
    if not 0 < count < len(drawn):
        return data
    if schedule.held_out_last:
        kept, held = drawn[:-count], drawn[-count:]
    else:
        kept, held = drawn[count:], drawn[:count]
    certain = schedule.split_seed is not None or run.evaluation.eval_sample_packing
    return replace(data, train=train.at(kept), evaluation=train.at(held) if certain else train)


def _drawn(train: Lengths, run: RunSpec, schedule: Schedule) -> list[int]:
    """Return the numbers of all samples in drawing order, without those dropped before the draw."""
    seed = _ANY_SEED if schedule.split_seed is None else schedule.split_seed
    order = numpy_permutation(train.count, seed)
    if not schedule.held_out_last or run.shapes.long_rows != "drop":
        return list(order)
    return [number for number in order if train.longest(number) <= run.shapes.sequence_len]
