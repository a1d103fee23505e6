"""Settings that save memory at the cost of time: recomputing, offloading, working in pieces."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from vramwise.types.sections import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """`gradient_checkpointing` is the request in the config, `recompute` what really happens."""

    neutral_why: ClassVar[str] = "nothing is recomputed or offloaded"

    gradient_checkpointing: bool = field(metadata=setting(False, compared=False))
    recompute: bool = field(metadata=setting(False, compared=False))
    checkpointing_reentrant: bool = field(metadata=setting(False, compared=False))
    # "hidden_states", "staged": only inputs of checkpointed blocks; "staged" copies them back into permanent buffers
    activation_offloading: Literal["off", "stream", "legacy", "hidden_states", "staged"] = field(
        metadata=setting("off", phrase="activation offloading")
    )
    layer_offloading: bool = field(metadata=setting(False, phrase="layer offloading", rare=True))
    tiled_mlp: bool = field(metadata=setting(False, phrase="tiled MLP", rare=True))
    tiled_mlp_pieces: int | None = field(metadata=setting(None, rare=True))  # None: one for every 32,768 tokens
