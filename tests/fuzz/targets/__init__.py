"""The registry: one small file a family of targets; each adds itself to `TARGETS`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, kw_only=True)
class Target:
    """A kind of input, how to make one, and what is done with it."""

    name: str
    # What the input is, for the table.
    about: str
    # How a file of it ends.
    extension: str
    make: Callable[[Random], bytes]
    # Each takes (bench, data) and raises a Failure where something does not hold. Fuzzing picks one, a corpus file
    # goes through all.
    checks: Mapping[str, Callable]

    def case(self, seed: int, index: int) -> tuple[bytes, str]:
        """The input and the check of one execution: the same for the same numbers, wherever it runs."""
        rng = Random(f"{self.name}/{seed}/{index}")
        return self.make(rng), rng.choice(list(self.checks))


TARGETS: dict[str, Target] = {}


def add(**fields) -> None:
    """Register a target."""
    target = Target(**fields)
    TARGETS[target.name] = target


def load() -> dict[str, Target]:
    """All targets."""
    from tests.fuzz.targets import (  # noqa: F401
        configs,
        fixes,
        foreign,
        logs,
        models,
        names,
        projects,
        recordings,
        runs,
        stacks,
        values,
        words,
    )

    return TARGETS
