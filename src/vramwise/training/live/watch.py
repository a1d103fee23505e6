"""Watches a loop of one's own as the memory guard watches a Trainer: `with vramwise.watch(model, optimizer):`.

The first forward pass shows a batch, so the run is predicted then; steps are seen by hooks of the optimizer.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

from vramwise import api
from vramwise.training.guard.callback import MemoryGuard
from vramwise.training.guard.watch import Warned
from vramwise.training.parent.expected import memory_of
from vramwise.units import gib
from vramwise.verbs.predict import Answer


class LoopWatch:
    """The memory of a loop inside a `with` block, in `memory.jsonl` of a folder; see `vramwise.watch`."""

    def __init__(
        self, model: Any, optimizer: Any, *, output_dir: str | Path, accumulation: int, guard: Any, **machine: Any
    ) -> None:
        self.answer: Answer | None = None
        self.not_predicted = ""
        self.steps = 0
        self.peak_reserved_bytes: int | None = None
        self._model, self._optimizer, self._accumulation = model, optimizer, accumulation
        self._machine, self._folder, self._more = machine, Path(output_dir), guard
        self._guard: MemoryGuard | None = None
        self._hooks: list[Any] = []

    @property
    def warnings(self) -> list[Warned]:
        """The problems that were noticed."""
        return [] if self._guard is None else self._guard.warnings

    def __enter__(self) -> Self:
        optimizer = self._optimizer
        while hasattr(optimizer, "optimizer"):  # accelerate's wrapper
            optimizer = optimizer.optimizer
        self._hooks = [
            self._model.register_forward_pre_hook(self._begin, with_kwargs=True),
            optimizer.register_step_pre_hook(lambda *_: self._tell("on_pre_optimizer_step")),
            optimizer.register_step_post_hook(lambda *_: self._stepped()),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        self._tell("on_train_end")
        for hook in self._hooks:
            hook.remove()

    def __str__(self) -> str:
        peak = self.peak_reserved_bytes
        seen = "nothing was measured" if peak is None else f"{gib(peak)} measured"
        said = self.not_predicted or "no forward pass was seen"
        if self.answer is not None:
            said = f"{gib(self.answer.needs.peak_reserved_bytes)} reserved predicted"
        noticed = "".join(f"\n[{one.rule}] step {one.step}: {one.message}" for one in self.warnings)
        return f"{said}, {seen} in {self.steps:,} steps (vramwise report {self._folder}){noticed}"

    def _begin(self, module: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Predict with the first batch, and open the log. Never raises: a loop must not end for it."""
        if self._guard is not None or not module.training:
            return
        import torch

        kind = next(module.parameters()).device.type
        cast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        batch = named or {"input_ids": given[0] if given else None}
        predicted = None
        try:
            self.answer = api.predict(
                model=module,
                optimizer=self._optimizer,
                batch=batch,
                autocast=cast,
                accumulation=self._accumulation,
                **self._machine,
            )
            predicted = memory_of(self.answer.prediction)
        except Exception as error:  # a loop must not end for it
            self.not_predicted = f"not predicted: {error}"
        self._guard = MemoryGuard(output_dir=self._folder, predicted=predicted, predict=False, **self._more)
        self._tell("on_train_begin", model=module, optimizer=self._optimizer)

    def _stepped(self) -> None:
        self.steps += 1
        self._tell("on_step_end")
        peak = None if self._guard is None else self._guard.peak_reserved_bytes
        self.peak_reserved_bytes = peak if peak is not None else self.peak_reserved_bytes

    def _tell(self, event: str, **more: Any) -> None:
        if self._guard is not None:
            args = SimpleNamespace(output_dir=str(self._folder), gradient_accumulation_steps=self._accumulation)
            state = SimpleNamespace(global_step=self.steps, max_steps=0)
            getattr(self._guard, event)(args, state, None, **more)
