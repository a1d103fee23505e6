"""What a mixer is made of: the layers under one block's name, and how attention is done in this run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vramwise.ghost.model.attention import AttentionLayer
from vramwise.ghost.model.kernels import Kernel
from vramwise.ghost.model.linear import Projection
from vramwise.ghost.model.norms import Norm
from vramwise.ghost.model.rotary import Rotation
from vramwise.ghost.tape import Parameter
from vramwise.types import ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Layers by their names within the block. `norm` and `weight` give None where the block has none."""

    model: ModelSpec
    linear: Callable[[str], Projection]
    weight: Callable[[str], Parameter | None]
    norm: Callable[[str], Norm | None]
    has: Callable[[str], bool]
    rows: Callable[[str], int]  # of a linear layer's weight
    kernel: Kernel
    rotate: Rotation | None
    attention: Callable[[], AttentionLayer]
    # whether kernels of their own run delta rules and state spaces; else transformers' torch code does
    fused: bool
