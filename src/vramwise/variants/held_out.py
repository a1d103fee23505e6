"""The samples that a run trains on and those it evaluates on, where it holds out a part of its data."""

from __future__ import annotations

from dataclasses import replace

from vramwise.types import RunSpec, Schedule
from vramwise.variants.lengths import Data, Lengths
from vramwise.variants.numpy_shuffling import numpy_permutation

# One draw of many, where every run draws anew.
_ANY_SEED = 42


def divided(data: Data, run: RunSpec, schedule: Schedule) -> Data:
    """The data with its held-out samples apart: as the trainer draws them, else one draw that could be.

    Unchanged where nothing is held out, where the evaluation has data of its own, and where the number of samples is
    not known. Where every run draws anew, rows that are not packed are evaluated whole: any of them may come.
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
    """The numbers of all samples in the order of the draw; those that are dropped before it are left out."""
    seed = _ANY_SEED if schedule.split_seed is None else schedule.split_seed
    order = numpy_permutation(train.count, seed)
    if not schedule.held_out_last or run.shapes.long_rows != "drop":
        return list(order)
    return [number for number in order if train.longest(number) <= run.shapes.sequence_len]
