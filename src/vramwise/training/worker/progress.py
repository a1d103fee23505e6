"""The output of a training run: one line per log, with the time left. Rank 0 only."""

from __future__ import annotations

import sys
import time
from typing import Any

from transformers import TrainerCallback

from vramwise.units import gib

_SHOWN = (("loss", "loss {:.4f}"), ("eval_loss", "eval loss {:.4f}"), ("grad_norm", "grad norm {:.3g}"))


# Steps that torch.compile compiles in, which say nothing of the time left.
_COMPILING = 2


class Progress(TrainerCallback):
    """Prints losses and progress; `phase` is what the run is doing, for error reports."""

    def __init__(self, predicted_bytes: int | None = None) -> None:
        self._predicted_bytes = predicted_bytes
        self.phase = "load"
        self.step: int | None = None  # the current optimizer step, from 1
        self._started = 0.0
        self._first_step = 0
        self._compiles = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Start the clock."""
        self.phase = "train"
        self._compiles = bool(getattr(args, "torch_compile", False))
        self._started, self._first_step = time.monotonic(), state.global_step
        if state.is_world_process_zero:
            resumed = f", resumed at step {state.global_step}" if state.global_step else ""
            say(f"training: {state.max_steps} steps{resumed}")

    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Remember the current step; start the clock anew once the model is compiled."""
        self.step = state.global_step + 1
        if self._compiles and state.global_step - self._first_step == _COMPILING:
            self._compiles = False
            self._started, self._first_step = time.monotonic(), state.global_step

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **more: Any) -> None:
        """Print one line."""
        if not state.is_world_process_zero or not logs:
            return
        words = [form.format(logs[name]) for name, form in _SHOWN if name in logs]
        if words:
            words = [f"step {state.global_step}/{state.max_steps}", *words]
            if "learning_rate" in logs:
                words.append(f"lr {logs['learning_rate']:.2e}")
            say("  ".join([*words, self._memory(), self._left(state)]).replace("    ", "  ").rstrip())

    def _memory(self) -> str:
        """Return the reserved memory beside the predicted peak; empty without a GPU."""
        import torch

        if not torch.cuda.is_available():
            return ""
        predicted = "" if self._predicted_bytes is None else f" of {gib(self._predicted_bytes)} predicted"
        return f"memory {gib(torch.cuda.memory_reserved())}{predicted}"

    def _left(self, state: Any) -> str:
        done = state.global_step - self._first_step
        left = state.max_steps - state.global_step
        if done <= 0 or left <= 0 or self._compiles:
            return ""
        seconds = (time.monotonic() - self._started) / done * left
        return f"{seconds / 60:.0f} min left" if seconds >= 90 else f"{seconds:.0f} s left"


def say(text: str) -> None:
    """Print one line immediately."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
