"""Settings that save memory at the cost of time: recomputing, offloading, working in pieces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """`gradient_checkpointing` is the request in the config, `recompute` what really happens."""

    gradient_checkpointing: bool
    recompute: bool
    checkpointing_reentrant: bool
    # "hidden_states", "staged": only inputs of checkpointed blocks; "staged" copies them back into permanent buffers
    activation_offloading: Literal["off", "stream", "legacy", "hidden_states", "staged"]
    layer_offloading: bool
    tiled_mlp: bool
    tiled_mlp_pieces: int | None  # None: one for every 32,768 tokens


NEUTRAL = Savings(
    gradient_checkpointing=False,
    recompute=False,
    checkpointing_reentrant=False,
    activation_offloading="off",
    layer_offloading=False,
    tiled_mlp=False,
    tiled_mlp_pieces=None,
)
NEUTRAL_WHY = "nothing is recomputed or offloaded"
