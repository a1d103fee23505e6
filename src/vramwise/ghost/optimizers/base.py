"""What a file of this folder says of its optimizers: which names they go by, and how one is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from vramwise.ghost.tape import Parameter, Storage, Tape


class Optimizer(Protocol):
    """What the trainer calls."""

    def step(self, t: Tape) -> None:
        """Update all parameters that have a gradient."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """The parameters of a run in their two groups: weight decay applies to all but biases and norms."""

    decayed: list[Parameter]
    plain: list[Parameter]

    @property
    def groups(self) -> list[list[Parameter]]:
        """Both, in the order in which they are stepped."""
        return [self.decayed, self.plain]

    @property
    def ordered(self) -> list[Parameter]:
        """All of them, in the order in which they are stepped."""
        return self.decayed + self.plain


def _nothing_else(name: str) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of optimizer. A name in `names` (lower case) wins over whatever another kind `handles`."""

    make: Callable[[str, Trained], Optimizer]
    names: tuple[str, ...] = ()
    handles: Callable[[str], bool] = _nothing_else


def decays(parameter: Parameter) -> bool:
    """Weight decay applies to all but biases and norms: they form a second group, stepped after the first."""
    name = parameter.name
    return not (name.endswith("bias") or "norm" in name.lower() or ".ln_" in name)


def trained(parameters: list[Parameter]) -> Trained:
    """Return parameters in their groups."""
    return Trained(
        decayed=[parameter for parameter in parameters if decays(parameter)],
        plain=[parameter for parameter in parameters if not decays(parameter)],
    )


class StatesOnly:
    """An optimizer whose step is one kernel a parameter: it makes states at first sight, and nothing else."""

    def __init__(self, parameters: list[Parameter]) -> None:
        self.parameters = parameters
        self.states: dict[int, Sequence[Storage]] = {}

    def step(self, t: Tape) -> None:
        """Make the states that are missing."""
        for parameter in self.parameters:
            if parameter.grad is not None and id(parameter) not in self.states:
                t.mark("optimizer", parameter.name)
                self.states[id(parameter)] = self.make(t, parameter)

    def make(self, t: Tape, parameter: Parameter) -> Sequence[Storage]:
        """Return a parameter's states."""
        raise NotImplementedError
