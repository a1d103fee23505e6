"""What makes a ghost run fast: steps and micro-steps that repeat are counted.

The loop hands its work to one of these two. `Plainly` does all of it; `Shortcuts` leaves out what would write the same
events again, and tells the tape. Tests compare the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from vramwise.ghost.loops.steps import LoopState, MicroStep, Plan
from vramwise.ghost.tape import Tensor
from vramwise.timeline import Repeat

if TYPE_CHECKING:
    from vramwise.ghost.loops.sft import Run


class Plainly:
    """Everything runs each time."""

    def step(self, plan: Plan, number: int, state: LoopState, work: Callable[[], None]) -> int:
        """Do a step. Returns the number of the last one that is accounted for."""
        work()
        return number

    def micro_step(self, micro: MicroStep, state: LoopState, work: Callable[[], None]) -> None:
        """Do a micro-step, as often as it happens."""
        for _ in range(1 + micro.again):
            work()


class Shortcuts(Plainly):
    """What repeats is counted."""

    def __init__(self, run: Run) -> None:
        self._run, self._t, self._engine = run, run.t, run.engine
        # an exchange of gradients goes by what was before: not all engines do the same in every micro-step
        self._counts_micro_steps = run.units is None or run.units.repeats
        self._last = Repeat(0, 0, 0, ())  # the micro-step that may happen once more
        self._grew = False  # it made something that is kept, which the next one finds

    def step(self, plan: Plan, number: int, state: LoopState, work: Callable[[], None]) -> int:
        """Do a step, and count those after it that are like it: they find what it found, and leave what it leaves."""
        t = self._t
        start, repeats, found = len(t.events), len(t.repeats), self._carried(state)
        kept = self._kept()
        work()
        left = self._carried(state)
        alike = plan.alike_after(number)
        if not alike or kept != self._kept() or [nbytes for _, nbytes in found] != [nbytes for _, nbytes in left]:
            return number
        carry = tuple([(old, new) for (old, _), (new, _) in zip(found, left, strict=True)])
        t.repeats[repeats:] = [Repeat(start, len(t.events), alike, carry, 1, tuple(t.repeats[repeats:]))]
        return number + alike

    def _carried(self, state: LoopState) -> list[tuple[int, int]]:
        """Return number and bytes of what outlives a step."""
        storages = state.storages() + ([] if self._engine is None else self._engine.carried())
        return [(storage.number, storage.nbytes) for storage in storages]

    def micro_step(self, micro: MicroStep, state: LoopState, work: Callable[[], None]) -> None:
        """Do a micro-step; one that does what the one before it did is counted."""
        t = self._t
        if micro.repeats and self._counts_micro_steps and not self._grew:
            if t.repeats and t.repeats[-1].start == self._last.start:
                t.repeats.pop()
            self._last = self._last._replace(times=self._last.times + 1 + micro.again)
            t.repeats.append(self._last)
            return
        start, old, kept = len(t.events), _number(state.loss), self._kept()
        work()
        self._grew = kept != self._kept()
        self._last = Repeat(start, len(t.events), 0, ((old, _number(state.loss)),))
        if micro.again and not self._grew:
            self._last = self._last._replace(times=micro.again)
            t.repeats.append(self._last)

    def _kept(self) -> dict[str, int]:
        """Return what libraries keep, by its number."""
        return {name: storage.number for name, storage in self._t.once.items()}


def _number(tensor: Tensor | None) -> int:
    return -1 if tensor is None or tensor.storage is None else tensor.storage.number
