"""Adapters on expert weights in a recorded block: the adapter is folded into a copy of the weight at first use."""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.ghost.model.moe import factors_of, folded
from vramwise.ghost.tape import Parameter, Tape, Tensor

Adapter = tuple[Parameter, Parameter]


class Folding:
    """Does what PEFT does around a module with expert weights. Registers of parameters begin at `first`."""

    def __init__(self, t: Tape, adapters: Sequence[Adapter | None], first: int) -> None:
        self._tape = t
        self._adapters = adapters
        self._first = first
        self._factors: dict[int, tuple[Tensor, Tensor] | None] = {}
        self._weights: dict[int, Tensor | None] = {}

    def mark(self, registers: list[Tensor | None], places: Sequence[int], *, entered: bool) -> None:
        """Called when a module with these weights begins (outermost wrapper first) or ends."""
        for place in reversed(places) if entered else places:
            pair = self._adapters[place - self._first]
            weight = registers[place]
            if pair is None:
                continue
            if entered:
                assert isinstance(weight, Parameter)
                self._weights[place] = weight
                self._factors[place] = factors_of(self._tape, weight, pair)
            else:
                registers[place] = self._weights.pop(place, weight)
                self._factors.pop(place, None)
            del weight

    def use(self, registers: list[Tensor | None], places: Sequence[int]) -> None:
        """Called before an op uses these registers. Folds adapters into their weights at first use."""
        for place in places:
            factors = self._factors.get(place)
            weight = self._weights.get(place)
            if factors is not None and isinstance(weight, Parameter) and registers[place] is weight:
                registers[place] = folded(self._tape, weight, factors)
