"""A question about a run that has one answer for all runs that are alike in what a ghost run looks at."""

from __future__ import annotations

from collections.abc import Hashable

from vramwise.types import ModelSpec, RunSpec
from vramwise.variants.simulate import SEEN_BY_THE_GHOST


class Asked:
    """Run, model, and whatever else the answer depends on: equal where the answer is the same."""

    __slots__ = ("_key", "model", "more", "run")

    def __init__(self, run: RunSpec, model: ModelSpec, *more: Hashable) -> None:
        self.run, self.model, self.more = run, model, more
        values = tuple([run.value(name) for name in SEEN_BY_THE_GHOST])
        self._key = (values, run.target.torch, run.target.gpu, model, more)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Asked) and self._key == other._key
