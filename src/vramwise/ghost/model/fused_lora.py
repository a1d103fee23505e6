"""Layers whose LoRA runs in fused kernels: the feed-forward layer, query/key/value, the output projection.

Dropout is applied once to the input that the projections of a kernel share; the down projection gets none. Kernels that
write gradients in place drop for each projection (`ops.in_place_lora`).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from vramwise.ghost.ops.elementwise import dropout
from vramwise.ghost.ops.fused_lora import Fused
from vramwise.ghost.ops.fused_lora_layers import fused_mlp, fused_output, fused_projections
from vramwise.ghost.ops.in_place_lora import in_place_mlp, in_place_output, in_place_projections
from vramwise.ghost.tape import Tape, Tensor


def _dropped(t: Tape, x: Tensor, rate: float) -> Tensor | None:
    return dropout(t, x, rate) if rate and t.training else None


@dataclass(frozen=True, slots=True)
class FusedLoraMlp:
    """down(act(gate(x)) * up(x)), all of it one kernel."""

    parts: tuple[Fused, Fused, Fused]
    rate: float
    _: KW_ONLY
    in_place: bool = False
    traced: bool = False

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
        if self.in_place:
            return in_place_mlp(t, x, self.parts, self.rate, traced=self.traced)
        dropped = _dropped(t, x, self.rate)
        return fused_mlp(t, x, dropped, self.parts)


@dataclass(frozen=True, slots=True)
class FusedLoraQkv:
    """Query, key and value of one input."""

    parts: tuple[Fused, Fused, Fused]
    rate: float
    _: KW_ONLY
    in_place: bool = False

    def __call__(self, t: Tape, x: Tensor) -> list[Tensor]:
        """Return all three."""
        if self.in_place:
            return in_place_projections(t, x, self.parts, self.rate)
        dropped = _dropped(t, x, self.rate)
        return fused_projections(t, x, dropped, self.parts)


@dataclass(frozen=True, slots=True)
class FusedLoraLinear:
    """A projection of its own input."""

    part: Fused
    rate: float
    _: KW_ONLY
    in_place: bool = False

    def __call__(self, t: Tape, x: Tensor) -> Tensor:
        """Return the layer's output."""
        if self.in_place:
            return in_place_output(t, x, self.part, self.rate)
        dropped = _dropped(t, x, self.rate)
        return fused_output(t, x, dropped, self.part)
