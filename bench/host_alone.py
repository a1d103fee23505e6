"""What the host takes for forward and backward of a tiny batch, as `card/step_timer.py` times it: predicted and seen.

The card is never the slower one there, so that this is the host alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from vramwise.facts.rates import Efficiency
from vramwise.ghost.loops.batches import BatchShape
from vramwise.types import ModelSpec, RunSpec
from vramwise.variants.speed.queues import on_host
from vramwise.variants.speed.timed_step import Stretch, record_step, stretches_of

TOKENS = 16


@dataclass(frozen=True, slots=True)
class Alone:
    """One direction: what is launched, and the seconds of the middle one of some turns."""

    stretches: tuple[Stretch, ...]
    seconds: float

    def predicted(self, costs: Efficiency) -> float:
        """Seconds of the host."""
        return sum(on_host(kernel, costs) * one.times for one in self.stretches for kernel in one.kernels)


def alone(run: RunSpec, model: ModelSpec, turns: Sequence[Sequence[float]]) -> tuple[Alone, ...]:
    """Forward and backward; nothing where the host was not timed by itself. The first turn warms up.

    Offloading begins in the Trainer's training step, which the turns do not go through: such runs are left out.
    """
    if len(turns) < 2 or run.savings.activation_offloading != "off":
        return ()
    kept: dict[str, Any] = {"evaluates": False, "eval_batch_size": None, "micro_batch_size": 1}
    run = run.changed(gradient_accumulation_steps=1, effective_batch_size=1, sequence_len=1, **kept)
    t, few = record_step(run, model, BatchShape(1, TOKENS, padded=False), None)
    marks = [(position, name) for position, name, _ in t.work.phases]
    begin = max(position for position, name in marks if name == "forward")
    middle = next(position for position, name in marks if name == "backward")
    end = next(position for position, name in marks if name == "clip")
    forward, backward = stretches_of(t, few, begin, middle), stretches_of(t, few, middle, end)
    seen = [median(turn[place] for turn in turns[1:]) for place in (0, 1)]
    return Alone(forward, seen[0]), Alone(backward, seen[1])
