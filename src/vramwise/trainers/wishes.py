"""A run without a file: the few options that describe it, and trainers that turn them into a config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The description of a run; None: the trainer's default."""

    model: str
    adapter: str | None = None  # "lora", "qlora"; None: every weight is trained
    rank: int | None = None
    sequence_len: int | None = None
    micro_batch: int | None = None
    accumulation: int | None = None
    optimizer: str | None = None
    checkpointing: bool | None = None
    attention: str | None = None
    packing: bool | None = None
    fused_loss: bool | None = None
    eval_batch: int | None = None


@runtime_checkable
class Composes(Protocol):
    """A trainer that writes a config from such a description."""

    def compose(self, wishes: Wishes) -> Mapping[str, Any]:
        """Return the values of a matching config, in the trainer's keys."""
        ...
