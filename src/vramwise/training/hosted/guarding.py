"""Another trainer's training under our guard: memory watched, its end recorded, signals heard.

These trainers have no place for callbacks in their files. All of them train with transformers' Trainer or a class
derived from it, so every Trainer that is made gets ours.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from transformers import Trainer

from vramwise.training.guard.callback import MemoryGuard
from vramwise.training.guard.ending import record_end
from vramwise.training.guard.limit import keep_limit
from vramwise.training.parent.child import announce
from vramwise.training.plan import TrainPlan
from vramwise.training.worker.leaving import leave_done
from vramwise.training.worker.payloads import refuse_payloads
from vramwise.training.worker.stop import StopOnSignal


def guarded(plan: TrainPlan, train: Callable[[], None]) -> int:
    """Train; the exit code. An error goes on to whoever is above, one of memory after it was written down."""
    refuse_payloads(plan.resume_from)
    announce(plan.output_dir)
    keep_limit(plan)
    watched = Watched(plan)
    watched.watch_every_trainer()
    try:
        train()
    except Stopped:
        pass
    except Exception as error:
        record_end(plan, error, watched.guard, watched.trainer)
        raise
    return leave_done(watched.stop.exit_code)


class Stopped(BaseException):
    """A signal ended the training: what the trainer's script does afterwards is for one that was trained."""


class Watched:
    """What is known of the training inside: the last Trainer made, and the guard in it."""

    def __init__(self, plan: TrainPlan) -> None:
        self.guard: MemoryGuard | None = None
        self.trainer: Any = None
        self.stop = StopOnSignal()
        self._plan = plan

    def watch_every_trainer(self) -> None:
        """Every Trainer made from here on has the guard."""
        made = Trainer.__init__

        @wraps(made)
        def __init__(trainer: Any, *arguments: Any, **words: Any) -> None:  # noqa: N807 (it takes that one's place)
            made(trainer, *arguments, **words)
            self._join(trainer)

        Trainer.__init__ = __init__

    def _ends_with_training(self, trainer: Any) -> None:
        """After a signal nothing follows: no last evaluation, no half-trained model saved as if it were finished."""
        theirs = trainer.train

        def train(*arguments: Any, **words: Any) -> Any:
            result = theirs(*arguments, **words)
            if self.stop.exit_code:
                raise Stopped
            return result

        trainer.train = train

    def _tells_of_evaluations(self, trainer: Any) -> None:
        """Where memory runs out in one, its batch is what must become smaller."""
        theirs = trainer.evaluate

        def evaluate(*arguments: Any, **words: Any) -> Any:
            if self.guard is not None:
                self.guard.phase = "eval"
            return theirs(*arguments, **words)

        trainer.evaluate = evaluate

    def _join(self, trainer: Any) -> None:
        self.trainer = trainer
        self._ends_with_training(trainer)
        self._tells_of_evaluations(trainer)
        trainer.add_callback(self.stop)
        if self._plan.guard.enabled:
            self.guard = MemoryGuard.for_plan(self._plan)
            trainer.add_callback(self.guard)
