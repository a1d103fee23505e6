"""The variants of a run that are weighed: one choice on every axis, or the run as it is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

from vramwise.types import Change, RunSpec
from vramwise.variants.axes import Axis

# A variant: on each axis 0 for what the run has, else the number of the choice.
Pick = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Space:
    """Axes with their choices."""

    names: tuple[str, ...]
    choices: tuple[tuple[Change, ...], ...]

    @property
    def start(self) -> Pick:
        """The run as it is."""
        return (0,) * len(self.names)

    @cached_property
    def size(self) -> int:
        """How many variants there are."""
        return prod(len(choices) + 1 for choices in self.choices)

    def picks(self) -> Iterator[Pick]:
        """Every variant."""
        return product(*(range(len(choices) + 1) for choices in self.choices))

    def changes(self, pick: Pick) -> tuple[Change, ...]:
        """What a variant alters, axis by axis."""
        return tuple(choices[at - 1] for choices, at in zip(self.choices, pick, strict=True) if at)

    def field(self, pick: Pick, name: str, otherwise: int) -> int:
        """A number that some change of a variant sets."""
        return next((one.fields[name] for one in self.changes(pick) if name in one.fields), otherwise)


def space_of(run: RunSpec, axes: Iterable[Axis], allow: Iterable[str], offers: Callable[[Change], bool]) -> Space:
    """The axes that are open, with the choices that `offers` lets through; axes without any are left out."""
    words = {"", *allow}
    found = [(axis.name, tuple(filter(offers, axis.choices(run)))) for axis in axes if axis.allow in words]
    found = [(name, choices) for name, choices in found if choices]
    return Space(names=tuple(name for name, _ in found), choices=tuple(choices for _, choices in found))


def count_changes(pick: Pick) -> int:
    """On how many axes a variant differs from the run."""
    return sum(1 for at in pick if at)
