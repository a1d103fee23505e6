"""transformers' Adafactor: rows and columns instead of a second moment; an update computed in fp32, one parameter at
a time."""

from __future__ import annotations

from vramwise.ghost.dtypes import FP32
from vramwise.ghost.optimizers.base import Kind
from vramwise.ghost.tape import Parameter, Storage, Tape


class Adafactor:
    """Without a first moment (`beta1` unset), as the trainers configure it."""

    def __init__(self, parameters: list[Parameter]) -> None:
        self.parameters = parameters
        self.states: dict[int, list[Storage]] = {}

    def step(self, t: Tape) -> None:
        """States at first sight, then the update's temporaries; the last parameter's stay in the loop's locals."""
        held: dict[str, Storage | None] = {}
        for parameter in self.parameters:
            if parameter.grad is not None:
                self._update(t, parameter, held)
        held.clear()

    def _update(self, t: Tape, parameter: Parameter, held: dict[str, Storage | None]) -> None:
        numel, shape = parameter.numel, parameter.shape
        low = parameter.dtype is not FP32
        t.mark("temporary", "optimizer step")
        held["grad"] = Storage(t, numel * 4) if low else None
        if id(parameter) not in self.states:
            t.mark("optimizer", parameter.name)
            sizes = [numel // shape[-1] * 4, numel // shape[-2] * 4] if len(shape) >= 2 else [numel * 4]
            self.states[id(parameter)] = [Storage(t, size) for size in sizes]
        t.mark("temporary", "optimizer step")
        held["weight"] = Storage(t, numel * 4) if low else None
        self._norm(t)
        squared = Storage(t, numel * 4)
        held["update"] = Storage(t, numel * 4)
        del squared
        if len(shape) >= 2:
            rows, columns = Storage(t, numel // shape[-1] * 4), Storage(t, numel // shape[-2] * 4)
            del rows, columns
        held["update"] = Storage(t, numel * 4)
        self._norm(t)
        negated = Storage(t, numel * 4)
        del negated

    def _norm(self, t: Tape) -> None:
        norm = Storage(t, 4)
        Storage(t, 4)
        del norm


OPTIMIZERS = (
    Kind(
        handles=lambda name: "adafactor" in name or "came" in name,
        make=lambda name, trained: Adafactor(trained.ordered),
    ),
)
