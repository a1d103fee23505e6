"""Simulations that an earlier test of this process made: hundreds of tests ask about the same few configs.

A ghost run or an allocator run is made once for all tests that ask for the same one, and counts as effort each time.
Commands do this only within one subject: `vramwise.variants.simulate`. Tests of the ghost run and of the allocator
call those directly and always run them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import pytest

# Timelines are large: so many of them take about 200 MB.
_MOST = 150


class Kept:
    """The last results of a function, by key."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._made: OrderedDict[Hashable, Any] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The result that was made for this key, else a new one."""
        if key not in self._made:
            self._made[key] = make()
            while len(self._made) > self._most:
                self._made.popitem(last=False)
        self._made.move_to_end(key)
        return self._made[key]


class Simulating:
    """Stand-ins for `ghost_run` and `simulate` that remember."""

    def __init__(self, ghost_run: Callable[..., Any], simulate: Callable[..., Any]) -> None:
        self._ghost_run, self._simulate = ghost_run, simulate
        self._ghosts, self._reports = Kept(), Kept(2 * _MOST)

    def ghost_run(
        self, run: Any, model: Any, *, widths: Any, eval_widths: Any, steps: int, gpu: Any, capacity_bytes: Any
    ) -> Any:
        from vramwise.variants.speed.timed_step import Asked

        key = (Asked(run, model, run.allocator.settings, tuple(widths), tuple(eval_widths), steps), capacity_bytes)
        return self._ghosts.get(
            key,
            lambda: self._ghost_run(
                run,
                model,
                widths=widths,
                eval_widths=eval_widths,
                steps=steps,
                gpu=gpu,
                capacity_bytes=capacity_bytes,
            ),
        )

    def simulate(
        self, timeline: Any, settings: Any, *, count: Callable[[int], None], stretches: Any, **where: Any
    ) -> Any:
        # The timeline is kept beside its report, so that its id stays its own.
        key = (id(timeline), settings, tuple(sorted(where.items())))
        report, _, worked = self._reports.get(key, lambda: self._played(timeline, settings, stretches, where))
        count(worked)
        return report

    def _played(self, timeline: Any, settings: Any, stretches: Any, where: dict[str, Any]) -> tuple[Any, Any, int]:
        worked: list[int] = []
        report = self._simulate(timeline, settings, count=worked.append, stretches=stretches, **where)
        return report, timeline, sum(worked)


@pytest.fixture(scope="session")
def _simulating() -> Simulating:
    from vramwise.variants import simulate

    return Simulating(simulate.ghost_run, simulate.simulate)


@pytest.fixture
def remembered_simulations(monkeypatch: pytest.MonkeyPatch, _simulating: Simulating) -> None:
    """Every simulation of a test is looked up here first. `usefixtures` in pyproject.toml asks for it for all tests."""
    monkeypatch.setattr("vramwise.variants.simulate.ghost_run", _simulating.ghost_run)
    monkeypatch.setattr("vramwise.variants.simulate.simulate", _simulating.simulate)
