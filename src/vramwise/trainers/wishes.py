"""A run that nobody has written down yet: the few things one says of it, and a trainer that makes a config of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What is said of a run; None: nothing, then the trainer's default holds."""

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
    """A trainer that writes a config from wishes."""

    def compose(self, wishes: Wishes) -> Mapping[str, Any]:
        """The values of a config that asks for this, in the trainer's keys."""
        ...
