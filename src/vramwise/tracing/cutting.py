"""Stands before the layers of a model: notes where each begins and ends, and what it is given and returns."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from vramwise.tracing.recorder import Recorder


class Lost(Exception):  # noqa: N818 - not a fault of the program: the model cannot be traced
    """What a model does could not be followed; says what."""


class Cut(NamedTuple):
    """Where a layer's instructions begin and end, what it was given and what it returned.

    `start`: where the instructions of the model itself begin that come before it. `handed`: what the layer before it
    had returned. `given`: name of the argument, name of the tensor; those of positional arguments begin with a digit.
    """

    layer: int
    start: int
    begin: int
    end: int
    given: list[tuple[str, str]]
    handed: str
    hidden: str
    result: str
    others: list[tuple[str, str]]  # what it returned besides, named by place


class Layers:
    """Layers that represent others run, the others hand their input on."""

    def __init__(self, recorder: Recorder, layers: Any, running: set[int]) -> None:
        self.recorder = recorder
        self.cuts: list[Cut] = []
        self.exchange = False  # whether layers are given what was made after the first had begun
        self._first = 0
        self._layers = layers
        self._called: set[int] = set()
        self._after = 0  # where the layer before ended
        self._handed = ""  # what it returned
        self._others: list[weakref.ref[torch.Tensor] | None] = []  # what the last layer that ran returned besides
        self._is_tuple = False
        for number, layer in enumerate(layers):
            layer.forward = self._before(number, layer.forward if number in running else None)

    def restore(self) -> None:
        """Give the layers their own forward back."""
        for layer in self._layers:
            del layer.forward

    def _before(self, number: int, plain: Any) -> Any:
        def forward(*args: Any, **kwargs: Any) -> Any:
            self.recorder.resolve()
            if number in self._called:
                raise Lost("its layers run more than once in a pass")
            self._called.add(number)
            given = named(self.recorder, args, kwargs)
            hidden = args[0] if args else kwargs["hidden_states"]
            if not self._after:
                self._first = self.recorder.count
            elif any(name != self.recorder.name(hidden) and _number(name) >= self._first for _, name in given):
                self.exchange = True
            out = self._skip(hidden, args) if plain is None else self._run(number, plain, hidden, given, args, kwargs)
            self._after = len(self.recorder.instructions)
            self._handed = self.recorder.name(out[0] if isinstance(out, tuple | list) else out)
            return out

        return forward

    def _skip(self, hidden: torch.Tensor, args: Any) -> Any:
        """What the layer was given; of what layers return besides, what this one was given too."""
        if not self._is_tuple:
            return hidden
        known = {id(one) for one in args}
        others = [None if ref is None else ref() for ref in self._others]
        return (hidden, *[one if id(one) in known else None for one in others])

    def _run(self, number: int, plain: Any, hidden: Any, given: list[tuple[str, str]], args: Any, kwargs: Any) -> Any:
        recorder = self.recorder
        name, begin = recorder.name(hidden), len(recorder.instructions)
        del hidden
        start = self._after if self.cuts else begin
        out = plain(*args, **kwargs)
        recorder.resolve()
        self._is_tuple = isinstance(out, tuple | list)
        first, others = (out[0], list(out[1:])) if self._is_tuple else (out, [])
        self._others = [weakref.ref(one) if isinstance(one, torch.Tensor) else None for one in others]
        returned = [(f"out.{place}", name) for place, name in named(recorder, others, {})]
        end = len(recorder.instructions)
        self.cuts.append(Cut(number, start, begin, end, given, self._handed, name, recorder.name(first), returned))
        return out


def _number(name: str) -> int:
    """Of a tensor: those made later have higher ones. Weights have none."""
    return int(name[1:]) if name[0] == "t" else -1


def named(recorder: Recorder, args: Any, kwargs: Any) -> list[tuple[str, str]]:
    """The tensors among arguments: where they are, and their names."""
    found = []

    def walk(place: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            found.append((place, recorder.name(value)))
        elif isinstance(value, list | tuple):
            for number, item in enumerate(value):
                walk(f"{place}.{number}", item)
        elif isinstance(value, Mapping):
            for key, item in value.items():
                walk(f"{place}.{key}", item)

    for number, value in enumerate(args):
        walk(str(number), value)
    for key, value in kwargs.items():
        walk(key, value)
    return found
