"""The registry: one small file a family of targets; each adds itself to `TARGETS`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from tests.fuzz.schedule import check_of

# With a walk, one input of so many is made afresh.
_FRESH_EVERY = 4


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
    # A fixed list of inputs with `len` and `text(number)`, which takes turns with fresh ones; see tests/fuzz/schedule.py.
    walk: Callable | None = None
    # Of the processor time, as a multiple of what other targets get.
    share: float = 1

    def case(self, seed: int, index: int) -> tuple[bytes, str]:
        """The input and the check of one execution: the same for the same numbers, wherever it runs."""
        fresh, place = divmod(index, _FRESH_EVERY)
        if self.walk is not None and place < _FRESH_EVERY - 1:
            walked, number = self.walk(), fresh * (_FRESH_EVERY - 1) + place
            return walked.text(number).encode(), check_of(walked, number, list(self.checks))
        rng = Random(f"{self.name}/{seed}/{index}")
        return self.make(rng), rng.choice(list(self.checks))

    def walked(self, executions: int) -> int:
        """How many of the first executions came from the walk."""
        return 0 if self.walk is None else executions - executions // _FRESH_EVERY


TARGETS: dict[str, Target] = {}


def add(**fields) -> None:
    """Register a target."""
    target = Target(**fields)
    TARGETS[target.name] = target


def load() -> dict[str, Target]:
    """All targets."""
    from tests.fuzz.targets import (  # noqa: F401
        configs,
        data,
        doors,
        fixes,
        foreign,
        keys,
        launching,
        logs,
        lookups,
        models,
        names,
        projects,
        recordings,
        runs,
        scripts,
        searches,
        stacks,
        values,
        words,
    )

    return TARGETS
