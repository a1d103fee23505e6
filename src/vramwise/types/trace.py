"""A trace: what a model's own code does in one layer of each kind, recorded by `tracing` and read by the ghost run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """One traced model. Compared by identity: a process has one object for each.

    `parameters`: name, shape, kind and layer, in the model's order. `kinds`: for each layer the number of its kind.
    `modes`: for each precision ("bf16", "bf16 autocast", "fp32 autocast", "fp32"), the programs of a pass.
    """

    source: str  # "transformers 5.22.2"
    parameters: tuple[tuple[str, tuple[int, ...], str, int | None], ...]
    layers: str
    embedding: str
    final_norm: str
    kinds: tuple[int, ...]
    modes: Mapping[str, Mapping[str, Any]]
