"""Layers whose LoRA runs in fused kernels: the feed-forward layer, query/key/value, the output projection.

Dropout is applied once to the input that the projections of a kernel share; the down projection gets none.
"""

from __future__ import annotations

from vramwise.ghost.ops.elementwise import dropout
from vramwise.ghost.ops.fused_lora import Fused
from vramwise.ghost.ops.fused_lora_attention import fused_output, fused_projections
from vramwise.ghost.ops.fused_lora_mlp import fused_mlp
from vramwise.ghost.tape import Tape, Tensor


def _dropped(t: Tape, x: Tensor, rate: float) -> Tensor | None:
    return dropout(t, x, rate) if rate and t.training else None


class FusedLoraMlp:
    """down(act(gate(x)) * up(x)), all of it one kernel."""

    __slots__ = ("parts", "rate")

    def __init__(self, parts: tuple[Fused, Fused, Fused], rate: float) -> None:
        self.parts = parts
        self.rate = rate

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Apply it."""
        dropped = _dropped(t, x, self.rate)
        return fused_mlp(t, x, dropped, self.parts)


class FusedLoraQkv:
    """Query, key and value of one input."""

    __slots__ = ("parts", "rate")

    def __init__(self, parts: tuple[Fused, Fused, Fused], rate: float) -> None:
        self.parts = parts
        self.rate = rate

    def __call__(self, t: Tape, x: Tensor) -> list[Tensor]:
        """All three."""
        dropped = _dropped(t, x, self.rate)
        return fused_projections(t, x, dropped, self.parts)


class FusedLoraLinear:
    """A projection of its own input."""

    __slots__ = ("part", "rate")

    def __init__(self, part: Fused, rate: float) -> None:
        self.part = part
        self.rate = rate

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Apply it."""
        dropped = _dropped(t, x, self.rate)
        return fused_output(t, x, dropped, self.part)
