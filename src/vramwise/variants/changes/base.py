"""Kinds of changes, and how a change is built from one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from vramwise.bundled import bundled_json
from vramwise.types import Change, RunSpec

Builder = Callable[[RunSpec], Change | None]
Effect = Literal["same", "rounding", "changes"]

# Settings that affect memory but are not fields of RunSpec, and what they mean.
SETTINGS = {
    "empty_cache_at_eval": "the cache is emptied before and after an evaluation",
    "loader_workers": "data loader processes",
    "loader_prefetch": "batches prefetched by each of them",
    "automatic_batch": "the batch is halved automatically after an out-of-memory error",
    "tf32": "fp32 matrix products run in tf32",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of change, independent of the run: what it does, its effect on training, and why."""

    id: str
    effect: Effect
    what: str
    why: str

    def to(self, title: str = "", **fields: Any) -> Change:
        """Return the change for one run; the default title is the general description."""
        return Change(id=self.id, title=title or self.what, effect=self.effect, why=self.why, fields=fields)


def change(name: str, effect: Effect, title: str, why: str, **fields: Any) -> Change:
    """Return a change that only one trainer has."""
    return Change(id=name, title=title, effect=effect, why=why, fields=fields)


@cache
def _kinds() -> dict[str, Kind]:
    return {name: Kind(name, **row) for name, row in bundled_json("kinds.json", __file__).items()}


def kind(name: str) -> Kind:
    """Return the kind of change with this id from `kinds.json`."""
    return _kinds()[name]
