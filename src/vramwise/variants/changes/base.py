"""What a change is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from vramwise.types import Change, RunSpec

Builder = Callable[[RunSpec], Change | None]
Effect = Literal["same", "rounding", "changes"]

# Settings that change memory but are no field of RunSpec, and what their values mean.
SETTINGS = {
    "empty_cache_at_eval": "the cache is emptied before an evaluation and after it",
    "loader_workers": "processes that load data",
    "loader_prefetch": "batches that each of them holds ready",
    "automatic_batch": "the batch is halved by itself after an out-of-memory",
    "tf32": "matrix products of fp32 tensors in tf32",
}


def change(name: str, effect: Effect, title: str, why: str, **fields: Any) -> Change:
    """One change."""
    return Change(id=name, title=title, effect=effect, why=why, fields=fields)
