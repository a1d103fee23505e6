"""The optimizer and gradient clipping."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from vramwise.types.sections import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """`name` is the name that transformers or the trainer uses."""

    neutral_why: ClassVar[str] = "transformers' default"

    name: str = field(metadata=setting("adamw_torch", flat="optimizer", compared=False))
    max_grad_norm: float = field(metadata=setting(1.0))
