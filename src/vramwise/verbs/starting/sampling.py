"""Selects a few lengths that represent many, because a search predicts dozens of variants with all its data."""

from __future__ import annotations

from dataclasses import replace

from vramwise.variants.lengths import Data, Lengths

# Enough to show the effect of alternating short and long rows on the allocator; an evaluation keeps nothing between
# batches.
FEW, _EVALUATED = 32, 8
# Packed rows hold several samples each and have similar lengths.
_MORE_PACKED = 4


def sampled(data: Data, a_step: int, *, packed: bool) -> Data:
    """Return samples of every length, including the longest, in the order of the data; at least two optimizer steps."""
    more = _MORE_PACKED if packed else 1
    train = _sampled(data.train, max(FEW, 2 * a_step) * more)
    return (
        data
        if train is data.train
        else replace(data, train=train, evaluation=_sampled(data.evaluation, _EVALUATED * more))
    )


def _sampled(lengths: Lengths | None, count: int) -> Lengths | None:
    if lengths is None or lengths.pairs or lengths.packed or len(lengths.tokens) <= count:
        return lengths
    ranked = sorted(range(len(lengths.tokens)), key=lambda place: lengths.tokens[place])
    last = len(ranked) - 1
    kept = sorted(ranked[round(step * last / (count - 1))] for step in range(count))
    return lengths.at(kept)
