"""A few lengths that stand for many: a search tries dozens of variants, and each takes as long as its data is large."""

from __future__ import annotations

from dataclasses import replace

from vramwise.variants.lengths import Data, Lengths

# So many show what short and long rows in turn do to the allocator; an evaluation keeps nothing from one to the next.
FEW, _EVALUATED = 32, 8
# Packed rows hold several samples each, and are about as long as one another.
_MORE_PACKED = 4


def sampled(data: Data, a_step: int, *, packed: bool) -> Data:
    """Samples of every length, the longest among them, in the order of the data; at least two optimizer steps."""
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
