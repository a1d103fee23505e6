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
    """Installs its handlers immediately, so that a signal during loading is not lost.

    `evaluates_later`, `saves_later`: what the stopped run would have done after its last step. A user who stops a run
    does not wait for an evaluation. `made_up_for`: whether the resumed run will do it.
    """

    def __init__(self, *, made_up_for: bool = True) -> None:
        self._made_up_for = made_up_for
        self.evaluates_later = self.saves_later = False
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
            self._put_off(control)
            control.should_save = True
            control.should_training_stop = True

    def on_epoch_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Do nothing in an epoch that the stop cut short: transformers ends that one, too."""
        if not self.stopped_by:
            return
        if state.epoch != int(state.epoch):
            control.should_log = control.should_evaluate = control.should_save = False
        elif control.should_evaluate and self._made_up_for:
            self._put_off(control)
            control.should_save = True  # again, with what is left undone

    def _put_off(self, control: Any) -> None:
        self.saves_later |= control.should_evaluate and control.should_save
        self.evaluates_later |= control.should_evaluate
        control.should_evaluate = False

    def _agreed(self, args: Any) -> bool:
        number = self._received
        if args.world_size > 1:
            shared = torch.tensor(number, device=args.device)
            torch.distributed.all_reduce(shared, op=torch.distributed.ReduceOp.MAX)
            number = int(shared)
        self.stopped_by = number
        return bool(number)
