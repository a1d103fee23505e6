"""A cache key for results that depend only on the settings that a ghost run uses."""

from __future__ import annotations

from collections.abc import Hashable

from vramwise.types import ModelSpec, RunSpec
from vramwise.variants.simulate import SEEN_BY_THE_GHOST


class Asked:
    """A run, a model, and anything else that the result depends on. Equal keys have the same result."""

    __slots__ = ("_key", "model", "more", "run")

    def __init__(self, run: RunSpec, model: ModelSpec, *more: Hashable) -> None:
        self.run, self.model, self.more = run, model, more
        values = tuple([run.value(name) for name in SEEN_BY_THE_GHOST])
        self._key = (values, run.target.torch, run.target.gpu, model, more)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Asked) and self._key == other._key
