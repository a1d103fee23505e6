"""Optimizers: which states they make at the first step, and what a step takes for the time being. One file a kind.

A file with OPTIMIZERS is found by itself; the names it says there are the names of a run's `optimizer`.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from vramwise.ghost.optimizers.base import Kind, Optimizer, Trained, trained
from vramwise.ghost.optimizers.torch_adam import FusedAdam
from vramwise.ghost.sharding import Sharding
from vramwise.ghost.tape import Parameter, Tape
from vramwise.types import RunSpec

__all__ = ["Optimizer", "all_kinds", "is_known", "make_optimizer", "optimizer_named"]


class HostStates:
    """States on the host: the device sees nothing of them."""

    def step(self, t: Tape) -> None:
        """Do nothing."""


@cache
def all_kinds() -> tuple[Kind, ...]:
    """Return what the files of this folder declare."""
    found: list[Kind] = []
    for name in sorted(module.name for module in iter_modules(__path__)):
        found += getattr(import_module(f"{__name__}.{name}"), "OPTIMIZERS", ())
    return tuple(found)


def _find(name: str) -> Kind | None:
    exact = (kind for kind in all_kinds() if name in kind.names)
    return next(exact, None) or next((kind for kind in all_kinds() if kind.handles(name)), None)


def make_optimizer(run: RunSpec, trainable: list[Parameter], sharding: Sharding) -> Optimizer:
    """Return the optimizer of a run over its parameters, those with weight decay first."""
    if sharding.host_states:
        return HostStates()
    return optimizer_named(run.optimizer.name, trained(trainable))


def optimizer_named(name: str, parameters: Trained) -> Optimizer:
    """Return the optimizer of that name over these parameters."""
    kind = _find(name.lower())
    return FusedAdam(parameters.ordered) if kind is None else kind.make(name.lower(), parameters)


def is_known(name: str) -> bool:
    """Return whether the memory of that optimizer is modelled; others are taken for fused AdamW."""
    return _find(name.lower()) is not None
