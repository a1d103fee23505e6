"""When a run hands cached memory back between and within its steps, beside what evaluation does of itself."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from vramwise.types import RunSpec


class Emptying(NamedTuple):
    """Steps count from 1. `within`: every so many steps, before their backward. `around`: a callback that collects
    garbage before each evaluation and one step late after it, and every so many steps where that is positive."""

    within: int | None
    around: int | None
    evals: Container[int]

    def before_step(self, step: int) -> bool:
        """At the beginning of this step: of the first, and of the second after an evaluation."""
        return self.around is not None and (step == 1 or step - 2 in self.evals)

    def before_backward(self, step: int) -> bool:
        """Between this step's forward and its backward, in every micro-step."""
        return self.within is not None and (step - 1) % self.within == 0

    def after_step(self, step: int) -> bool:
        """At the end of this step, before its evaluation if it has one."""
        if self.around is None:
            return False
        return step in self.evals or (self.around > 0 and step % self.around == 0)

    def between(self, step: int) -> bool:
        """Whether the cache is emptied between this step and the next."""
        return self.after_step(step) or self.before_step(step + 1)


def emptying_of(run: RunSpec, evals: Container[int]) -> Emptying:
    """What the run's settings say; `evals`: the steps that an evaluation follows."""
    return Emptying(run.allocator.empty_cache_steps, run.allocator.collect_steps, evals)
