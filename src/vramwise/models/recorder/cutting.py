"""Wraps the layers of a model to record where each begins and ends, and what it receives and returns."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from vramwise.models.recorder.recorder import Recorder


class Lost(Exception):  # noqa: N818 - not a fault of the program: the model cannot be traced
    """The model does something that cannot be traced. The message says what."""


class Cut(NamedTuple):
    """Where a layer's instructions begin and end, what it received and what it returned.

    `start`: the position of the model's own instructions that precede the layer. `handed`: the tensor that the
    previous layer returned. `given`: pairs of argument name and tensor name; names of positional arguments begin with
    a digit.
    """

    layer: int
    start: int
    begin: int
    end: int
    given: list[tuple[str, str]]
    handed: str
    hidden: str
    result: str
    others: list[tuple[str, str]]  # further tensors that it returned, named by position


class Layers:
    """Runs the layers in `running` and records their cuts. All other layers return their input unchanged."""

    def __init__(self, recorder: Recorder, layers: Any, running: set[int]) -> None:
        self.recorder = recorder
        self.cuts: list[Cut] = []
        self.exchange = False  # whether layers receive tensors made after the first layer began
        self._first = 0
        self._layers = layers
        self._called: set[int] = set()
        self._after = 0  # where the previous layer ended
        self._handed = ""  # the tensor that it returned
        self._others: list[weakref.ref[torch.Tensor] | None] = []  # further results of the last layer that ran
        self._is_tuple = False
        for number, layer in enumerate(layers):
            layer.forward = self._before(number, layer.forward if number in running else None)

    def restore(self) -> None:
        """Restore the layers' own forward methods."""
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
        """Return the hidden states unchanged, as a skipped layer's result.

        If layers return tuples, further results of the last layer that ran are included if this layer received them.
        """
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
    """Return a tensor's number, which is higher the later the tensor was made. Weights have none and give -1."""
    return int(name[1:]) if name[0] == "t" else -1


def named(recorder: Recorder, args: Any, kwargs: Any) -> list[tuple[str, str]]:
    """Return the place and the name of every tensor in the arguments."""
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
