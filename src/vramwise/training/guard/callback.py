"""The memory guard: a callback of transformers' Trainer that watches the allocator and records what it sees.

It takes two readings per step (after clipping, after the optimizer) and one at the end of every evaluation and save;
nothing waits for the GPU. Without CUDA it notes that and does nothing. Errors in here end the guard, never the
training. `watch` judges the readings, `memory_log` writes the file.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from transformers import TrainerCallback

from vramwise.training.guard import oom
from vramwise.training.guard.memory_log import MemoryLog, log_path
from vramwise.training.guard.samples import CudaBackend, MeasuredPhase, Sample, find_backend
from vramwise.training.guard.watch import Expected, Warned, Watch
from vramwise.training.plan import GuardThresholds, PredictedMemory

if TYPE_CHECKING:
    from vramwise.training.plan import TrainPlan

_logger = logging.getLogger("vramwise.guard")
_ALLOCATOR_HISTORY = 50_000


def _unharmful(event: Callable[..., None]) -> Callable[..., None]:
    """Wrap an event of the callback so that no error escapes: the first one switches the guard off."""

    @wraps(event)
    def guarded(self: MemoryGuard, args: Any, state: Any, control: Any, **more: Any) -> None:
        if self.broken is not None:
            return
        try:
            event(self, args, state, **more)
        except Exception as error:  # the guard is never worth a training run
            self.broken = error
            self._say(f"the memory guard stops watching: {type(error).__name__}: {error}")

    return guarded


class MemoryGuard(TrainerCallback):
    """Watch memory while a Trainer trains: `Trainer(..., callbacks=[MemoryGuard()])`.

    `max_width`: the widest row a batch may have; wider ones cause a warning. `reset_peaks`: reset torch's peak counters
    after each phase, so that every phase has its own peaks; off by default, because other readers of those counters
    would then see the phase instead of the run. `history_entries`: let the allocator keep that many of its last events
    for the record of an out-of-memory. `limit_bytes`: what the allocator may reserve, if that is less than the card.
    `report`: receives each warning as text; default: Python's logging.
    """

    def __init__(
        self,
        *,
        output_dir: str | Path | None = None,
        predicted: PredictedMemory | None = None,
        thresholds: GuardThresholds | None = None,
        max_width: int | None = None,
        reset_peaks: bool = False,
        history_entries: int = 0,
        attempt: int = 1,
        limit_bytes: int | None = None,
        backend: CudaBackend | Literal["auto"] | None = "auto",
        report: Callable[[str], None] | None = None,
    ) -> None:
        self.broken: Exception | None = None
        self.warnings: list[Warned] = []
        self.phase: MeasuredPhase = "load"
        self._output_dir = output_dir
        self._expected = Expected(
            max_width=max_width,
            predicted=predicted,
            peaks_per_phase=reset_peaks,
            thresholds=thresholds or GuardThresholds(),
        )
        self._history_entries = history_entries
        self._attempt = attempt
        self._limit_bytes = limit_bytes
        self._find_backend = find_backend if backend == "auto" else lambda: backend
        self._report = report
        self._backend: CudaBackend | None = None
        self._log: MemoryLog | None = None
        self._watch = Watch(self._expected)
        self._width: int | None = None
        self._hook: Any = None
        self._pre_optimizer_seen = False

    @classmethod
    def for_plan(cls, plan: TrainPlan, *, max_width: int | None = None, **more: Any) -> MemoryGuard:
        """Return the guard of a `vramwise train` run: with its prediction, its thresholds, and peaks by phase."""
        return cls(
            output_dir=plan.output_dir,
            predicted=plan.predicted,
            thresholds=plan.guard,
            max_width=max_width,
            reset_peaks=True,
            history_entries=_ALLOCATOR_HISTORY,
            attempt=plan.attempt,
            limit_bytes=plan.memory_limit_bytes,
            **more,
        )

    # ---- the run begins and ends

    @_unharmful
    def on_train_begin(self, args: Any, state: Any, model: Any = None, optimizer: Any = None, **_: Any) -> None:
        """Open the log, take a reading after loading, and prepare for an out-of-memory."""
        if not self._expected.thresholds.enabled:
            return
        self._backend = self._find_backend()
        self._log = MemoryLog(log_path(self._output_dir or args.output_dir, int(os.environ.get("RANK", "0") or 0)))
        self._log.write("start", self._start_record(args, state))
        if self._backend is None:
            return
        expected = replace(self._expected, device_bytes=self._room(), max_steps=state.max_steps or None)
        self._watch = Watch(expected)
        if not getattr(args, "torch_compile", False):  # a hook would break a compiled graph
            self._hook = _on_forward(model, self._see_forward)
        self._arm(model, optimizer)
        self._take(state.global_step, "load", fresh=True)
        self.phase = "train"

    def _room(self) -> int | None:
        """Return the available memory: the card, or the allocator's limit if that is lower."""
        bounds = (None if self._backend is None else self._backend.device_bytes, self._limit_bytes)
        return min((bound for bound in bounds if bound is not None), default=None)

    def _arm(self, model: Any, optimizer: Any) -> None:
        """Prepare the record of an out-of-memory.

        It needs torch's private functions; without them there is no snapshot.
        """
        try:
            oom.arm(model, optimizer, history_entries=self._history_entries)
        except Exception as error:
            self._say(f"an out-of-memory will be recorded without its snapshot: {type(error).__name__}: {error}")

    def _start_record(self, args: Any, state: Any) -> dict[str, Any]:
        predicted = self._expected.predicted
        return {
            "attempt": self._attempt,
            "step": state.global_step,
            "max_steps": state.max_steps,
            "micro_batch_size": getattr(args, "per_device_train_batch_size", None),
            "gradient_accumulation_steps": getattr(args, "gradient_accumulation_steps", None),
            "eval_batch_size": getattr(args, "per_device_eval_batch_size", None),
            "device": None if self._backend is None else self._backend.name,
            "device_bytes": self._room(),
            "peaks": "phase" if self._expected.peaks_per_phase else "run",
            "predicted": None if predicted is None else asdict(predicted),
        }

    @_unharmful
    def on_train_end(self, args: Any, state: Any, **_: Any) -> None:
        """Write the end and release everything."""
        if self._log is not None:
            self._log.write("end", {"attempt": self._attempt, "step": state.global_step})
            self._log.close()
            self._log = None
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        if self._backend is not None:
            oom.disarm()

    # ---- steps and phases

    @_unharmful
    def on_step_begin(self, args: Any, state: Any, **_: Any) -> None:
        """Reset the phase at the first micro-batch of a step."""
        self.phase = "train"
        self._pre_optimizer_seen = False

    @_unharmful
    def on_pre_optimizer_step(self, args: Any, state: Any, **_: Any) -> None:
        """Take a reading after forward, backward and clipping."""
        self._take(state.global_step + 1, "train")
        self._pre_optimizer_seen = True
        self.phase = "optimizer"

    @_unharmful
    def on_step_end(self, args: Any, state: Any, **_: Any) -> None:
        """Take a reading after the step, when its gradients are freed."""
        if not self._pre_optimizer_seen:  # before transformers 4.42 there is no event between the two
            self._take(state.global_step, "train")
        self._take(state.global_step, "optimizer")
        self.phase = "train"

    @_unharmful
    def on_evaluate(self, args: Any, state: Any, **_: Any) -> None:
        """Take a reading after an evaluation."""
        self._take(state.global_step, "eval", fresh=True)
        self.phase = "train"

    @_unharmful
    def on_save(self, args: Any, state: Any, **_: Any) -> None:
        """Take a reading after a checkpoint was written."""
        self._take(state.global_step, "save")

    def _take(self, step: int, phase: MeasuredPhase, *, fresh: bool = False) -> None:
        if self._backend is None or self._log is None:
            return
        sample = Sample(step=step, phase=phase, reading=self._backend.read(fresh=fresh), width=self._width)
        self._width = None
        if self._expected.peaks_per_phase:
            self._backend.reset_peaks()
        self._log.write("sample", {"attempt": self._attempt, **sample.to_json()})
        for warned in self._watch.see(sample):
            self.warnings.append(warned)
            self._log.write("warning", {"attempt": self._attempt, **asdict(warned), "see": warned.see})
            further = f" (vramwise explain {warned.see[0]})" if warned.see else ""
            self._say(f"[{warned.rule}] step {warned.step}: {warned.message}{further}")

    def _see_forward(self, training: bool, width: int | None) -> None:
        """Record the phase and the width before every forward: the cheapest place that knows the batch."""
        if not training:
            self.phase = "eval"
        if width is not None and (self._width is None or width > self._width):
            self._width = width

    def _say(self, text: str) -> None:
        if self._report is not None:
            self._report(text)
        else:
            _logger.warning("%s", text)


def _on_forward(model: Any, tell: Callable[[bool, int | None], None]) -> Any:
    """Call `tell` before every forward of the model: training or not, and the row width. Returns the hook's handle."""
    if model is None or not hasattr(model, "register_forward_pre_hook"):
        return None

    def look(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tokens = kwargs.get("input_ids")
        if tokens is None and args:
            tokens = args[0]
        shape: Any = getattr(tokens, "shape", ())
        tell(module.training, int(shape[-1]) if len(shape) >= 2 else None)

    return model.register_forward_pre_hook(look, with_kwargs=True)
