"""Another trainer's training under our guard: memory is watched, its end recorded, signals handled.

These trainers have no place for callbacks in their files. All of them use transformers' Trainer or a subclass, so every
Trainer that is created gets our guard.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from transformers import Trainer

from vramwise.training.guard.callback import MemoryGuard
from vramwise.training.guard.oom import keep_limit, record_end
from vramwise.training.parent.child import announce
from vramwise.training.plan import TrainPlan
from vramwise.training.worker.leaving import leave_done
from vramwise.training.worker.payloads import refuse_payloads
from vramwise.training.worker.stop import StopOnSignal
from vramwise.training.worker.unfinished import SUPPORTED, finishing


def guarded(plan: TrainPlan, train: Callable[[], None]) -> int:
    """Train and return the exit code. Errors propagate, an out-of-memory after it was recorded."""
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
    """A signal ended the training, so the rest of the trainer's script must not run."""


class Watched:
    """The training inside: the last Trainer created, and the guard in it."""

    def __init__(self, plan: TrainPlan) -> None:
        self.guard: MemoryGuard | None = None
        self.trainer: Any = None
        self.stop = StopOnSignal(made_up_for=SUPPORTED)
        self._plan = plan

    def watch_every_trainer(self) -> None:
        """Add the guard to every Trainer created from now on."""
        made = Trainer.__init__

        @wraps(made)
        def __init__(trainer: Any, *arguments: Any, **words: Any) -> None:  # noqa: N807 (it replaces that method)
            made(trainer, *arguments, **words)
            self._join(trainer)

        Trainer.__init__ = __init__

    def _ends_with_training(self, trainer: Any) -> None:
        """After a signal, skip everything that follows: no last evaluation, no half-trained model saved as finished."""
        theirs = trainer.train

        def train(*arguments: Any, **words: Any) -> Any:
            result = theirs(*arguments, **words)
            if self.stop.exit_code:
                raise Stopped
            return result

        trainer.train = train

    def _tells_of_evaluations(self, trainer: Any) -> None:
        """Set the phase during evaluations: if memory runs out in one, its batch must become smaller."""
        theirs = trainer.evaluate

        def evaluate(*arguments: Any, **words: Any) -> Any:
            if self.guard is not None:
                self.guard.phase = "eval"
            return theirs(*arguments, **words)

        trainer.evaluate = evaluate

    def _join(self, trainer: Any) -> None:
        self.trainer = trainer
        trainer.__class__ = finishing(trainer.__class__)
        self._ends_with_training(trainer)
        self._tells_of_evaluations(trainer)
        trainer.add_callback(self.stop)
        if self._plan.guard.enabled:
            self.guard = MemoryGuard.for_plan(self._plan)
            trainer.add_callback(self.guard)
