"""What a stopped run leaves undone at its last step: an evaluation, a save after it, a loss that is not yet logged.

A user who stops a run does not wait for an evaluation. It is kept in the checkpoint, and the resumed run makes up for
it before its first step, so that it has the losses, evaluations and best checkpoint of an undisturbed run.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transformers import Trainer

from vramwise.limits import ceilings, parse_json, read_file
from vramwise.training.worker.payloads import resuming
from vramwise.training.worker.stop import StopOnSignal
from vramwise.whole_files import put_whole

FILE = "vramwise-unfinished.json"
# Older releases of transformers have one large function, in which nothing can be made up for.
SUPPORTED = hasattr(Trainer, "_run_epoch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """`evaluate`, `save`: what comes after the last step. `loss_sum`: of the steps since the log at `logged_at`."""

    evaluate: bool = False
    save: bool = False
    loss_sum: float = 0.0
    logged_at: int | None = None


def read_unfinished(checkpoint: str) -> Unfinished:
    """Return what a checkpoint left undone; nothing if it has no such file. Raises an error for a bad file."""
    path = Path(checkpoint) / FILE
    if not path.is_file():
        return Unfinished()
    values = parse_json(read_file(path, ceilings.RUN_FILE_BYTES, "a checkpoint's file"))
    return Unfinished(
        evaluate=bool(values["evaluate"]),
        save=bool(values["save"]),
        loss_sum=float(values["loss_sum"]),
        logged_at=int(values["logged_at"]),
    )


class FinishingTrainer(Trainer):
    """A Trainer that keeps in its checkpoints what a stop left undone, and does it when it resumes."""

    _left = Unfinished()
    # Random states after an evaluation that was made up for: they replace those of the checkpoint.
    _random: TemporaryDirectory[str] | None = None

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        loss_sum = float(self.accelerator.gather(self._tr_loss.detach().reshape(1)).mean())
        if self.args.should_save:
            stop = next((one for one in self.callback_handler.callbacks if isinstance(one, StopOnSignal)), None)
            left = Unfinished(
                evaluate=stop is not None and stop.evaluates_later,
                save=stop is not None and stop.saves_later,
                loss_sum=loss_sum,
                logged_at=self._globalstep_last_logged,
            )
            folder = Path(self._get_output_dir(trial)) / f"checkpoint-{self.state.global_step}"
            put_whole(folder / FILE, f"{json.dumps(asdict(left))}\n".encode())

    def _init_training_state(
        self, max_steps: Any, steps: Any, epochs: Any, resume_from_checkpoint: str | None, trial: Any
    ) -> Any:
        begun = super()._init_training_state(max_steps, steps, epochs, resume_from_checkpoint, trial)
        if resume_from_checkpoint is not None:
            with resuming(resume_from_checkpoint):
                self._left = read_unfinished(resume_from_checkpoint)
                self._remember_patience()
        return begun

    def _remember_patience(self) -> None:
        """Let early stopping count on from the checkpoint."""
        stored = self.state.stateful_callbacks.get("EarlyStoppingCallback")
        for callback in self.callback_handler.callbacks:
            if hasattr(callback, "early_stopping_patience_counter") and isinstance(stored, dict):
                callback.early_stopping_patience_counter = int(stored["attributes"]["early_stopping_patience_counter"])

    def _run_epoch(self, *arguments: Any, **more: Any) -> None:
        left = self._left
        if left.evaluate:
            self._load_rng_state(more["resume_from_checkpoint"])
        self._make_up(more["model"], more["epoch"], more["ignore_keys_for_eval"], more["start_time"])
        if self.control.should_training_stop:
            return
        if left.evaluate:
            self._random = TemporaryDirectory()
            self._save_rng_state(self._random.name)
        super()._run_epoch(*arguments, **more)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if self._random is None:
            super()._load_rng_state(checkpoint)
            return
        with self._random as folder:
            super()._load_rng_state(folder)
        self._random = None

    def _finalize_training(self, trial: Any, num_train_samples: Any, start_time: Any) -> Any:
        self._make_up(self.model_wrapped, self.state.epoch, None, start_time)  # a stop after the last step of all
        return super()._finalize_training(trial, num_train_samples, start_time)

    def _make_up(self, model: Any, epoch: Any, ignored_keys: Any, start_time: Any) -> None:
        left, self._left = self._left, Unfinished()
        if left.logged_at is not None:
            self._tr_loss += left.loss_sum
            self._total_loss_scalar -= left.loss_sum  # the mean of this part of the run counts its own steps only
            self._globalstep_last_logged = left.logged_at
        if left.evaluate:
            self.control.should_evaluate, self.control.should_save = True, left.save
            self._maybe_log_save_evaluate(self._tr_loss, None, model, None, epoch, ignored_keys, start_time)


@cache
def finishing(kind: type[Trainer]) -> type[Trainer]:
    """Return a class of Trainer that finishes what a stop left undone."""
    if issubclass(kind, FinishingTrainer) or not SUPPORTED:
        return kind
    return type(kind.__name__, (FinishingTrainer, kind), {"__module__": kind.__module__})
