"""Sample packing: samples into rows of equal capacity, and a test that the model keeps them apart.

Positions restart in every sample of a row, and from the restarts the attention (a varlen kernel, or transformers'
block-diagonal mask for sdpa, eager and flex) keeps samples apart. `check_isolation` tests that with a few tokens on the
loaded model, before the first step: if changing the first of two samples in a row changes the output for the second,
they attend to each other, and packing would train something other than the config says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from vramwise.errors import VramwiseError


def pack(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Return bins of sample numbers with at most `capacity` tokens each.

    Longest samples come first, each into the first bin with room. First-fit-decreasing needs at most 11/9 of the
    optimal number of bins, plus one. Deterministic: equal lengths keep their order. Raises VramwiseError if a sample is
    longer than `capacity`.
    """
    order = sorted(range(len(lengths)), key=lambda number: (-lengths[number], number))
    if order and lengths[order[0]] > capacity:
        raise VramwiseError(f"a sample of {lengths[order[0]]} tokens does not fit a row of {capacity}")
    room = _Room(len(lengths), capacity)
    bins: list[list[int]] = []
    for number in order:
        at = room.take(lengths[number])
        if at == len(bins):
            bins.append([])
        bins[at].append(number)
    return bins


class _Room:
    """The free space of each bin as a tree of maxima: the first bin with room is found in log(n) steps."""

    def __init__(self, bins: int, capacity: int) -> None:
        self._leaves = 1 << max(0, (bins - 1).bit_length())
        self._most = [capacity] * (2 * self._leaves)

    def take(self, length: int) -> int:
        """Put a sample into the first bin that has room; return the bin's number."""
        node = 1
        while node < self._leaves:
            node = 2 * node if self._most[2 * node] >= length else 2 * node + 1
        self._most[node] -= length
        found = node - self._leaves
        while node > 1:
            node //= 2
            self._most[node] = max(self._most[2 * node], self._most[2 * node + 1])
        return found


_TOKENS = 4
# Routing or kernels may cause rounding differences; a sample that is attended to changes the logits far more.
_TOLERANCE = 1e-2


def check_isolation(model: Any, attention: str) -> None:
    """Raise VramwiseError if a packed sample attends to its neighbour."""
    change, scale = leak(model)
    if change > _TOLERANCE * scale:
        raise VramwiseError(
            f"sample_packing: {type(model).__name__} under {attention} lets packed samples see each other (changing "
            f"one moves its neighbour's logits by {change:.2g} of {scale:.2g}); set sample_packing: false"
        )


@torch.no_grad()
def leak(model: Any) -> tuple[float, float]:
    """Return how far the second sample's logits change with the first one's tokens, and the size of the logits."""
    was_training = model.training
    model.eval()
    first, second = (_second_sample_logits(model, start) for start in (1, 1 + _TOKENS))
    model.train(was_training)
    return float((first - second).abs().max()), float(first.abs().max())


def _second_sample_logits(model: Any, start: int) -> torch.Tensor:
    device = next(model.parameters()).device
    # the same second sample after two different first ones
    ids = torch.tensor([[*range(start, start + _TOKENS), *range(1, 1 + _TOKENS)]], device=device)
    positions = torch.tensor([[*range(_TOKENS), *range(_TOKENS)]], device=device)
    logits: torch.Tensor = model(input_ids=ids, position_ids=positions, use_cache=False).logits
    return logits[0, _TOKENS:].float()
