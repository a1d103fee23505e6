"""Schedule-free AdamW: the point that is averaged, and the second moment; both in each parameter's type.

Read off `AdamWScheduleFree.step` of schedulefree 1.4 (its `foreach` path, the default): the gradient is normalised in
place, so a step takes one list of roots as large as its group, which stays until the next group's is made.
"""

from __future__ import annotations

from vramwise.ghost.optimizers.base import Kind
from vramwise.ghost.tape import Parameter, Storage, Tape


class ScheduleFreeAdam:
    """Two states for each parameter, and the roots of the second moments of one group after the other."""

    def __init__(self, groups: list[list[Parameter]]) -> None:
        self.groups = groups
        self.states: dict[int, list[Storage]] = {}

    def step(self, t: Tape) -> None:
        """States of a group where they are missing, then its roots."""
        roots: list[Storage] = []
        for group in self.groups:
            stepped = [parameter for parameter in group if parameter.grad is not None]
            for parameter in stepped:
                if id(parameter) not in self.states:
                    t.mark("optimizer", parameter.name)
                    self.states[id(parameter)] = [Storage(t, _bytes(parameter)) for _ in range(2)]
            t.mark("temporary", "optimizer step")
            roots = [Storage(t, _bytes(parameter)) for parameter in stepped] or roots
        del roots


def _bytes(parameter: Parameter) -> int:
    return parameter.local * parameter.state_dtype.size


OPTIMIZERS = (Kind(names=("schedule_free_adamw",), make=lambda name, trained: ScheduleFreeAdam(trained.groups)),)
