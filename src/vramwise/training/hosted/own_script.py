"""Runs the user's own script in this process, under our guard, as Python would run it; no file is changed.

Nothing is imported before the script does it: some libraries (Unsloth) must come before transformers. The guard joins
when transformers' Trainer is loaded. On a restart, every TrainingArguments with the same effective batch gets the
decided batch sizes.
"""

from __future__ import annotations

import importlib.util
import runpy
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from vramwise.training.guard.oom import keep_limit, record_end
from vramwise.training.parent.child import announce
from vramwise.training.plan import TrainPlan
from vramwise.training.worker.leaving import leave_done

if TYPE_CHECKING:
    from vramwise.training.hosted.guarding import Watched

_TRAINER = "transformers.trainer"


def run_script(plan: TrainPlan, path: str, arguments: Sequence[str]) -> int:
    """Run the script and return the exit code. Its errors propagate, an out-of-memory after it was recorded."""
    announce(plan.output_dir)
    keep_limit(plan)
    joined = Joined(plan)
    sys.meta_path.insert(0, AfterImport(_TRAINER, joined.join))
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).parent))
    try:
        runpy.run_path(path, run_name="__main__")
    except Exception as error:
        watched = joined.watched
        if watched is None:
            record_end(plan, error, None, None)
        else:
            record_end(as_it_ran(plan, watched.trainer), error, watched.guard, watched.trainer)
        raise
    except BaseException as end:
        if not joined.is_stop(end):
            raise
    if joined.watched is None or joined.watched.trainer is None:
        sys.stderr.write("vramwise: the script made no transformers Trainer, so memory was not watched\n")
    return leave_done(0 if joined.watched is None else joined.watched.stop.exit_code)


def as_it_ran(plan: TrainPlan, trainer: Any) -> TrainPlan:
    """Return the plan with the batch sizes of the script's Trainer."""
    args = getattr(trainer, "args", None)
    if args is None:
        return plan
    return replace(
        plan,
        micro_batch_size=args.per_device_train_batch_size,
        gradient_accumulation_steps=args.gradient_accumulation_steps,
        eval_batch_size=None if plan.eval_batch_size is None else args.per_device_eval_batch_size,
    )


class Joined:
    """Our part in the script's training, from the moment that transformers' Trainer exists."""

    def __init__(self, plan: TrainPlan) -> None:
        self.watched: Watched | None = None
        self._plan = plan

    def join(self, trainer: ModuleType) -> None:
        """Watch every Trainer that is created, and give it this attempt's batch sizes and checkpoint."""
        from vramwise.training.hosted.guarding import Watched
        from vramwise.training.worker.payloads import refuse_payloads

        refuse_payloads(self._plan.resume_from)
        if self._plan.attempt > 1:
            force_batches(trainer.TrainingArguments, self._plan)
        if self._plan.resume_from is not None:
            go_on_from(trainer.Trainer, self._plan.resume_from)
        self.watched = Watched(self._plan)
        self.watched.watch_every_trainer()

    def is_stop(self, end: BaseException) -> bool:
        """Return whether an exception is our own, which ends a training after a signal."""
        if self.watched is None:
            return False
        from vramwise.training.hosted.guarding import Stopped

        return isinstance(end, Stopped)


def force_batches(arguments: Any, plan: TrainPlan) -> None:
    """Give every TrainingArguments with the plan's effective batch the plan's batch sizes; others stay unchanged."""
    made = arguments.__post_init__

    @wraps(made)
    def __post_init__(self: Any) -> None:  # noqa: N807 (it replaces that method)
        before = (self.per_device_train_batch_size, self.gradient_accumulation_steps)
        after = (plan.micro_batch_size, plan.gradient_accumulation_steps)
        if before[0] * before[1] == after[0] * after[1]:
            self.per_device_train_batch_size, self.gradient_accumulation_steps = after
            self.auto_find_batch_size = False
            if plan.eval_batch_size is not None:
                self.per_device_eval_batch_size = plan.eval_batch_size
            if before != after:
                sys.stderr.write(
                    f"vramwise: per_device_train_batch_size {before[0]} → {after[0]}, gradient_accumulation_steps "
                    f"{before[1]} → {after[1]} (effective batch as before)\n"
                )
        made(self)

    arguments.__post_init__ = __post_init__


def go_on_from(trainer: Any, checkpoint: str) -> None:
    """Make `train()` resume from a checkpoint, unless the script names one itself."""
    theirs = trainer.train

    @wraps(theirs)
    def train(self: Any, resume_from_checkpoint: Any = None, *others: Any, **words: Any) -> Any:
        return theirs(self, resume_from_checkpoint or checkpoint, *others, **words)

    trainer.train = train


class AfterImport(MetaPathFinder):
    """Calls `then` with a module after it has been loaded, whoever imports it."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._then = then
        self._looking = False

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find the module normally, with a loader that calls `then`."""
        if fullname != self._name or self._looking:
            return None
        self._looking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Telling(spec.loader, self._then)
        return spec


class _Telling(Loader):
    def __init__(self, loader: Loader, then: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._then = then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # Code that asks the module for its source must find the real loader.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._then(module)
