"""Least squares of logarithms by Levenberg's and Marquardt's way, of constants that stay within physical bounds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import exp

from vramwise.facts.rates import Efficiency

Residuals = Callable[[Efficiency], list[float]]
# Rounds, the slopes' step, when to give up, and which gain is enough to go on.
_ROUNDS, _NUDGE, _HOPELESS, _ENOUGH = 12, 0.02, 1e4, 1e-3
# What each constant may be: shares of what a card does at most, and times that a host can take.
BOUNDS: Mapping[str, tuple[float, float]] = {
    "product": (0.4, 0.95),
    "attention_forward": (0.1, 0.9),
    "attention_backward": (0.1, 0.9),
    "cudnn": (0.8, 2.5),
    "cut_loss": (0.05, 0.9),
    "stream": (0.2, 0.95),
    "strided": (0.1, 1.0),
    "triton": (0.2, 1.0),
    "dequantise": (0.1, 1.0),
    "optimizer": (0.2, 1.0),
    "cached": (1.0, 4.0),
    "pcie": (0.2, 1.0),
    "kernel": (0.5e-6, 5e-6),
    "host_forward": (4e-6, 60e-6),
    "host_backward": (4e-6, 60e-6),
    "host_library": (5e-6, 200e-6),
    "host_triton": (10e-6, 400e-6),
    "host_copy": (20e-6, 600e-6),
    "host_product": (2e-6, 40e-6),
    "host_op": (0.5e-6, 15e-6),
    "host_call": (1e-6, 80e-6),
    "host_hook": (1e-6, 20e-6),
    "host_function": (5e-6, 300e-6),
    "host_checkpoint": (50e-6, 800e-6),
    "host_line": (20e-6, 800e-6),
    "host_sync": (5e-6, 500e-6),
    "host_micro_step": (0.2e-3, 10e-3),
    "host_step": (0.2e-3, 60e-3),
    "host_tensor": (2e-6, 30e-6),
}


def least_squares(costs: Efficiency, names: Sequence[str], residuals: Residuals) -> Efficiency:
    """Levenberg's and Marquardt's way, in logarithms of the constants and within their bounds."""
    found, damping = residuals(costs), 0.1
    for _ in range(_ROUNDS):
        slopes = []
        for name in names:
            moved = residuals(_moved(costs, {name: _NUDGE}))
            slopes.append([(after - before) / _NUDGE for after, before in zip(moved, found, strict=True)])
        while damping < _HOPELESS:
            step = dict(zip(names, _solved(slopes, found, damping), strict=True))
            tried = _moved(costs, step)
            after = residuals(tried)
            if _sum(after) < _sum(found):
                break
            damping *= 4
        else:
            return costs
        gained = _sum(found) - _sum(after)
        costs, found, damping = tried, after, damping / 4
        print(f"  {_sum(found):.4f}", file=sys.stderr)
        if gained < _ENOUGH * _sum(found):
            return costs
    return costs


def _sum(residuals: Sequence[float]) -> float:
    return sum(one * one for one in residuals)


def _moved(costs: Efficiency, step: Mapping[str, float]) -> Efficiency:
    """The constants after a step in their logarithms, no longer than is sane."""
    values = {}
    for name, change in step.items():
        low, high = BOUNDS[name]
        values[name] = min(high, max(low, getattr(costs, name) * exp(min(1.0, max(-1.0, change)))))
    return replace(costs, **values)


def _solved(slopes: Sequence[Sequence[float]], residuals: Sequence[float], damping: float) -> list[float]:
    """The step that the slopes ask for: normal equations by Gauss's elimination."""
    size = len(slopes)
    rows = [[sum(x * y for x, y in zip(a, b, strict=True)) for b in slopes] for a in slopes]
    right = [-sum(x * y for x, y in zip(a, residuals, strict=True)) for a in slopes]
    for place in range(size):
        rows[place][place] += damping * (rows[place][place] + 1e-3)
    for pivot in range(size):
        for other in range(pivot + 1, size):
            factor = rows[other][pivot] / rows[pivot][pivot]
            rows[other] = [x - factor * y for x, y in zip(rows[other], rows[pivot], strict=True)]
            right[other] -= factor * right[pivot]
    found = [0.0] * size
    for place in reversed(range(size)):
        rest = sum(rows[place][other] * found[other] for other in range(place + 1, size))
        found[place] = (right[place] - rest) / rows[place][place]
    return found
