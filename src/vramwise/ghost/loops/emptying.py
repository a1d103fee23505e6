"""When a run empties the cache between and within its steps, besides what evaluation does itself."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from vramwise.types import RunSpec


class Emptying(NamedTuple):
    """Steps count from 1.

    `within`: every that many steps, before backward. `around`: a callback that collects garbage before each evaluation
    and one step late after it, and every that many steps if positive.
    """

    within: int | None
    around: int | None
    evals: Container[int]

    def before_step(self, step: int) -> bool:
        """Whether the cache is emptied at the start of this step: the first, and the second after an evaluation."""
        return self.around is not None and (step == 1 or step - 2 in self.evals)

    def before_backward(self, step: int) -> bool:
        """Whether it is emptied between forward and backward of this step, in every micro-step."""
        return self.within is not None and (step - 1) % self.within == 0

    def after_step(self, step: int) -> bool:
        """Whether it is emptied at the end of this step, before its evaluation, if any."""
        if self.around is None:
            return False
        return step in self.evals or (self.around > 0 and step % self.around == 0)

    def between(self, step: int) -> bool:
        """Whether the cache is emptied between this step and the next."""
        return self.after_step(step) or self.before_step(step + 1)


def emptying_of(run: RunSpec, evals: Container[int]) -> Emptying:
    """Return what the run's settings say; `evals`: the steps followed by an evaluation."""
    return Emptying(run.allocator.empty_cache_steps, run.allocator.collect_steps, evals)
