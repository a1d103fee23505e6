"""Calibrates the shares of a card's rates that kernels reach, and what the host takes, on measured runs.

In two parts. Runs with a list of their kernels show the seconds of each family: the shares follow from those. What the
host takes follows from the step times, with the kernels' seconds as they are then. Least squares of logarithms.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from math import log, sqrt
from pathlib import Path
from statistics import median

from least_squares import Residuals, least_squares
from speed import Case, slowed
from vramwise.facts.rates import Efficiency, Rates
from vramwise.ghost.work import Kernel
from vramwise.variants.speed import queues
from vramwise.variants.speed.queues import on_card

# Measured by themselves, back to back (bench/card/kernel_rates.py), nine large products reached 0.715 of the tensor
# rate; in a profiled step, in which the card rests between kernels, such products reach what "product" says.
BACK_TO_BACK = 0.715

# Sessions in which nothing ran beside a timed run: their host is what is calibrated. What another's pace may be.
QUIET = ("speed-drawn", "speed-drawn-second")
_PACES = tuple(1 + step / 20 for step in range(17))
_TURNS = 3
_HALF = 0.5  # what a run's forward and backward count for beside its step

_COUNTS = 0.01  # from which share of the card's time on a family counts

TARGET = Path(__file__).resolve().parent.parent / "src" / "vramwise" / "facts" / "efficiency.json"
# What was measured of the same things by themselves, or is usual: constants stay near it unless the runs say otherwise.
ALONE: Mapping[str, float] = {
    "host_forward": 18e-6,
    "host_backward": 15e-6,
    "host_library": 30e-6,
    "host_triton": 60e-6,
    "host_copy": 100e-6,
    "host_product": 5e-6,
    "host_op": 2e-6,
    "host_call": 5e-6,
    "host_hook": 4e-6,
    "host_function": 80e-6,
    "host_checkpoint": 250e-6,
    "host_line": 120e-6,
    "host_sync": 30e-6,
    "host_micro_step": 1.5e-3,
    "host_step": 5e-3,
    "host_tensor": 10e-6,
}
_NEAR = 0.4  # how much a constant that is e times another counts, beside runs that are e times off
ON_CARD = (
    *("product", "attention_forward", "attention_backward", "stream", "strided", "triton", "dequantise"),
    *("optimizer", "cached", "kernel", "pcie", "cudnn", "cut_loss"),
)
# Read off the marks of timed scripts, between the end of backward and the next forward, and not calibrated: 3 to 4 ms
# where a model has 290 tensors, 15 ms where it has 730 with its adapters.
# Before the first kernel of a checkpointed block the card rests 200 us longer than before another's.
FROM_MARKS = {"host_micro_step": 1e-3, "host_tensor": 13e-6, "host_checkpoint": 200e-6}
# Read off single kernels and not calibrated: `added` (0.55 of the memory's rate) and `turn` (0.6 us). The kernels are
# in tests/variants/test_speed_kernels.py.
ON_HOST = tuple(name for name in ALONE if name not in FROM_MARKS)
_FAMILY = {"grouped product": "product", "scatter": "stream", "strided": "stream", "to host": "copies"}
_FAMILY |= {"blockwise": "optimizer"}
_FAMILY |= {"from host": "copies"}
# Words in the names of kernels that say which family they are of; the first that fits.
_WORDS = (
    ("attention forward", ("flash_fwd", "fmha_fwd", "fprop")),
    ("attention backward", ("flash_bwd", "fmha_bwd", "bprop")),
    ("product", ("nvjet", "gemm", "cutlass", "splitk", "xmma", "gemv")),
    ("dequantise", ("dequantize", "nf4_dequant")),
    ("cut loss", ("_cce_",)),
    ("optimizer", ("multi_tensor", "koptimizer")),
    ("copies", ("dtoh", "htod")),
    (
        "triton",
        (
            "triton_",
            "liger",
            "rms_norm",
            "element_mul",
            "swiglu",
            "geglu",
            "rope",
            "layernorm",
            "_fg_kernel",
            "_dwf_dw",
        ),
    ),
)


def family_of(kernel: str) -> str:
    """The family of a kernel by its name."""
    low = kernel.lower()
    return next((family for family, words in _WORDS if any(word in low for word in words)), "stream")


def merged(family: str) -> str:
    """The family as far as a kernel's name tells."""
    return _FAMILY.get(family, family)


def work_by_kind(case: Case) -> list[tuple[Kernel, float]]:
    """The kernels of a step, those that are alike counted together."""
    total = sum(count for _, count in case.work)
    found: dict[tuple[object, ...], tuple[Kernel, float]] = {}
    for work, count in case.work:
        between = max(0, case.micro_steps - len(work.micro_steps))
        for position, stretches in enumerate((*work.micro_steps, work.update)):
            alike = position == min(1, len(work.micro_steps) - 1)
            share = (1 + (between if alike else 0)) * count / total
            for stretch in stretches:
                for kernel in stretch.kernels:
                    key = (
                        kernel.family,
                        kernel.read,
                        kernel.written,
                        kernel.dims,
                        kernel.count,
                        kernel.turns,
                        kernel.adds,
                    )
                    times = stretch.times * share + found.get(key, (kernel, 0.0))[1]
                    found[key] = (kernel, times)
    return list(found.values())


def measured(case: Case) -> dict[str, float]:
    """Seconds of each family in a step, as the card showed them."""
    found: dict[str, float] = {}
    for name, _, us in case.kernels:
        found[family_of(name)] = found.get(family_of(name), 0.0) + us * 1e-6
    return found


def rested(costs: Efficiency) -> Efficiency:
    """The same of a card that rests between kernels, as it does while a profiler slows the host."""
    return replace(costs, sustained=1.0)


def off_by_family(cases: Sequence[Case]) -> Residuals:
    """Logarithms of errors, each family by its share of the card's time."""
    listed = [(case, work_by_kind(case), measured(case)) for case in cases]

    def residuals(costs: Efficiency) -> list[float]:
        found: list[float] = []
        costs = rested(costs)
        for case, kernels, truth in listed:
            guess: dict[str, float] = {}
            for kernel, times in kernels:
                family = merged(kernel.family)
                guess[family] = guess.get(family, 0.0) + times * on_card(kernel, case.rates, costs)
            whole = sum(truth.values())
            for family, seconds in truth.items():
                if seconds > _COUNTS * whole and guess.get(family, 0.0) > 0:
                    found.append(sqrt(seconds / whole) * log(guess[family] / seconds))
        return found

    return residuals


def off_by_step(cases: Sequence[Case], costs: Efficiency) -> Residuals:
    """Logarithms of errors of the step times, and of the host alone where it was timed; what kernels take on the card
    stays as these costs have it.

    The host alone was timed after a profiled step, and took 1.2 times what steps say: only ratios of its times count.
    """
    seen = [one for case in cases for one in case.alone]
    held: dict[int, float] = {}

    def remembered(kernel: Kernel, rates: Rates, _: Efficiency) -> float:
        if id(kernel) not in held:
            held[id(kernel)] = on_card(kernel, rates, costs)
        return held[id(kernel)]

    def residuals(tried: Efficiency) -> list[float]:
        own, queues.on_card = queues.on_card, remembered
        try:
            near = [_NEAR * log(getattr(tried, name) / usual) for name, usual in ALONE.items()]
            host = [log(one.predicted(tried) / one.seconds) for one in seen]
            level = median(host) if host else 0.0
            steps = [log(case.predicted(tried) / case.seconds) for case in cases]
            return [*steps, *[_HALF * (one - level) for one in host], *near]
        finally:
            queues.on_card = own

    return residuals


def fit(cases: Sequence[Case], costs: Efficiency) -> tuple[Efficiency, dict[str, float]]:
    """Both parts, and by session how much slower the host was than in quiet ones."""
    with_kernels = [case for case in cases if case.kernels]
    if with_kernels:
        costs = least_squares(costs, ON_CARD, off_by_family(with_kernels))
        costs = replace(costs, sustained=BACK_TO_BACK / costs.product)
    costs = replace(costs, **FROM_MARKS)
    paces = {case.session: case.host for case in cases}
    for _ in range(_TURNS):
        cases = [slowed(case, paces) for case in cases]
        costs = least_squares(costs, ON_HOST, off_by_step(cases, costs))
        paces = {session: _pace([case for case in cases if case.session == session], costs) for session in paces}
    return costs, paces


def _pace(cases: Sequence[Case], costs: Efficiency) -> float:
    """How much slower the host was in these runs of a session: the pace at which their step times agree best."""
    if cases[0].session in QUIET:
        return 1.0
    tried = {pace: [replace(case, host=pace) for case in cases] for pace in _PACES}
    return min(_PACES, key=lambda pace: sum(abs(log(one.predicted(costs) / one.seconds)) for one in tried[pace]))


def write(costs: Efficiency, runs: int, paces: Mapping[str, float]) -> None:
    """Into the package."""
    basis = f"efficiencies and host costs measured on an H200 ({runs} runs)"
    values = {name: float(f"{value:.4g}") for name, value in asdict(costs).items()}
    stored = json.loads(TARGET.read_text()) | {"basis": basis, "paces": dict(paces), "values": values}
    TARGET.write_text(json.dumps(stored, indent=1) + "\n")
