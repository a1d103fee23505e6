"""A run without a file: the few options that describe it."""

from __future__ import annotations

from dataclasses import dataclass


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
