"""Tests with a few tokens on the model itself, before the first step, whether it keeps packed samples apart.

Two samples are put in one row: if changing the first changes the output for the second, samples attend to each other,
and packing would train something other than the config says.
"""

from __future__ import annotations

from typing import Any

import torch

from vramwise.errors import VramwiseError

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
