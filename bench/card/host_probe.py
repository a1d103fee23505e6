"""What the host takes for a few things by themselves, in microseconds: which host a run's times are of.

Python alone, a launch, a view, a module's call, an operation that autograd records, a node of its backward pass.
On a lent machine some cores can be twice as slow as the rest for a while, though nothing else runs on it.
`keep_to_fast_cores` looks for those that are not.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from statistics import median

TURNS, CALLS = 7, 400
_LOOKS, _PIECES = 4, 100


def probe() -> dict[str, float]:
    """The median of some turns of many calls each."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    plain = torch.ones(16, device=device)
    weighted = torch.ones(16, device=device, requires_grad=True)
    square = torch.ones(16, 16, device=device, requires_grad=True)
    row = torch.ones(1, 16, device=device)
    nothing = torch.nn.Identity()
    found = {
        "python": _microseconds(_python),
        "launch": _microseconds(lambda: plain.add_(1.0)),
        "view": _microseconds(lambda: plain.view(4, 4)),
        "module": _microseconds(lambda: nothing(plain)),
        "recorded": _microseconds(lambda: weighted.mul(2.0)),
        "linear": _microseconds(lambda: torch.nn.functional.linear(row, square)),
    }
    found["backward"] = median(_backward(weighted) for _ in range(TURNS))
    return {name: round(us, 3) for name, us in found.items()}


def keep_to_fast_cores(count: int) -> dict[int, float]:
    """Let this process use the fastest cores alone; microseconds of a piece of Python on each, at the slowest look."""
    allowed = sorted(os.sched_getaffinity(0))
    found = dict.fromkeys(allowed, 0.0)
    for _ in range(_LOOKS):
        for core in allowed:
            os.sched_setaffinity(0, {core})
            begin = time.perf_counter()
            for _ in range(_PIECES):
                _python()
            found[core] = max(found[core], round((time.perf_counter() - begin) / _PIECES * 1e6, 2))
    os.sched_setaffinity(0, sorted(allowed, key=found.__getitem__)[:count])
    return found


def _python() -> int:
    """A fixed piece of pure Python: calls, a dictionary, integers."""
    seen: dict[int, int] = {}
    for number in range(50):
        seen[number % 7] = max(number, seen.get(number % 7, 0))
    return sum(seen.values())


def _microseconds(work: Callable[[], object]) -> float:
    spent = []
    for _ in range(TURNS):
        _wait()
        begin = time.perf_counter()
        for _ in range(CALLS):
            work()
        spent.append((time.perf_counter() - begin) / CALLS * 1e6)
    return median(spent)


def _backward(weighted: object) -> float:
    """Of one node in a chain."""
    value = weighted
    for _ in range(CALLS):
        value = value * 1.5  # type: ignore[operator]
    total = value.sum()  # type: ignore[attr-defined]
    _wait()
    begin = time.perf_counter()
    total.backward()
    return (time.perf_counter() - begin) / CALLS * 1e6


def _wait() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
