"""torch's own optimizers: states in each parameter's type; the `foreach` versions take temporaries of the parameters'
size."""

from __future__ import annotations

from vramwise.ghost.dtypes import DType
from vramwise.ghost.optimizers.base import Kind, StatesOnly
from vramwise.ghost.tape import Parameter, Storage, Tape


class FusedAdam(StatesOnly):
    """One kernel for everything: no temporaries; a step counter of four bytes on the device for each parameter."""

    def make(self, t: Tape, parameter: Parameter) -> tuple[Storage, ...]:
        """Return the counter and both moments."""
        nbytes = parameter.local * parameter.state_dtype.size
        return Storage(t, 4), Storage(t, nbytes), Storage(t, nbytes)


class ForeachAdam:
    """`foreach=True`, the default on CUDA: temporaries of a whole group at once (Adam: roots of the second moments)."""

    def __init__(self, groups: list[list[Parameter]], *, states: int = 2, temporaries: int = 1) -> None:
        self.groups = groups
        self.count = states
        self.temporaries = temporaries
        self.states: dict[int, list[Storage]] = {}

    def step(self, t: Tape) -> None:
        """States first, group by group; then the update of each group, one type after the other."""
        for group in self.groups:
            stepped = [parameter for parameter in group if parameter.grad is not None]
            for parameter in stepped:
                if id(parameter) not in self.states:
                    t.mark("optimizer", parameter.name)
                    nbytes = parameter.local * parameter.state_dtype.size
                    self.states[id(parameter)] = [Storage(t, nbytes) for _ in range(self.count)]
            if self.temporaries:
                self._update(t, stepped)

    def _update(self, t: Tape, parameters: list[Parameter]) -> None:
        t.mark("temporary", "optimizer step")
        by_dtype: dict[DType, list[Parameter]] = {}
        for parameter in parameters:
            by_dtype.setdefault(parameter.dtype, []).append(parameter)
        for group in by_dtype.values():
            made = [
                Storage(t, parameter.local * parameter.state_dtype.size)
                for _ in range(self.temporaries)
                for parameter in group
            ]
            del made


OPTIMIZERS = (
    Kind(
        names=("adamw_torch_fused", "optimi_adamw"),
        handles=lambda name: "apex_fused" in name,
        make=lambda name, trained: FusedAdam(trained.ordered),
    ),
    Kind(
        names=("adamw_torch", "adamw_hf", "adamw", "adam"),
        make=lambda name, trained: ForeachAdam(trained.groups),
    ),
    Kind(
        names=("sgd", "optimi_sgd"),
        make=lambda name, trained: ForeachAdam(trained.groups, states=0, temporaries=0),
    ),
    Kind(names=("rmsprop",), make=lambda name, trained: ForeachAdam(trained.groups, states=1)),
    Kind(
        names=("adagrad",),
        make=lambda name, trained: ForeachAdam(trained.groups, states=1, temporaries=2),
    ),
)
