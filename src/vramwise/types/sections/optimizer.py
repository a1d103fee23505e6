"""The optimizer and gradient clipping."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """`name` is the name that transformers or the trainer uses."""

    name: str = field(metadata={"flat": "optimizer"})
    max_grad_norm: float


NEUTRAL = Optimizer(name="adamw_torch", max_grad_norm=1.0)
NEUTRAL_WHY = "transformers' default"
