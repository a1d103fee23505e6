"""SIGTERM and SIGINT in the worker: finish the step, save a checkpoint, end. A second signal ends immediately.

All ranks must stop at the same step, but signals do not reach them at the same moment: with several ranks, they agree
after every step.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

import torch
from transformers import TrainerCallback

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopOnSignal(TrainerCallback):
    """Installs its handlers immediately, so that a signal during loading is not lost."""

    def __init__(self) -> None:
        self._received = 0
        self.stopped_by = 0  # the signal that ended training; 0: none did
        for number in _SIGNALS:
            signal.signal(number, self._take)

    @property
    def exit_code(self) -> int:
        """128 + the signal's number, as in a shell; 0 if training was not stopped."""
        return 128 + self.stopped_by if self.stopped_by else 0

    def _take(self, number: int, _frame: FrameType | None) -> None:
        self._received = number
        for other in _SIGNALS:
            signal.signal(other, signal.SIG_DFL)

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Exit if a signal came while loading: nothing was trained, so there is nothing to save."""
        if self._agreed(args):
            raise SystemExit(self.exit_code)

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Save and stop if a signal came during the step."""
        if self._agreed(args):
            control.should_save = True
            control.should_training_stop = True
            control.should_evaluate = False  # a user who stops a run does not wait for an evaluation

    def _agreed(self, args: Any) -> bool:
        number = self._received
        if args.world_size > 1:
            shared = torch.tensor(number, device=args.device)
            torch.distributed.all_reduce(shared, op=torch.distributed.ReduceOp.MAX)
            number = int(shared)
        self.stopped_by = number
        return bool(number)
