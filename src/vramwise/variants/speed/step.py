"""Computes the time of one optimizer step: its micro-steps one after the other, then the update."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import log

from vramwise.facts.rates import Efficiency, Rates, efficiency, efficiency_basis, measured_error, rates_of
from vramwise.ghost.loops.batches import BatchShape
from vramwise.models.compiled import compiled_program
from vramwise.types import ModelSpec, RunSpec
from vramwise.variants.batches import train_shapes
from vramwise.variants.effort import KERNEL, Effort
from vramwise.variants.speed.queues import Queues
from vramwise.variants.speed.timed_step import StepWork, list_step, samples_apart, usual_sample

_GRID = 1.01
# Batches of many shapes are represented by at most this many.
_MOST_SHAPES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedError:
    """The error of predicted step times on measured runs, in per cent. `basis`: which runs these are."""

    runs: int
    median: float
    worst: float
    basis: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """The speed of one optimizer step. Tokens include padding and cover all GPUs.

    `parts`: seconds by kind of work. `step_seconds` is rounded to a grid of 1 %, because it is not more precise.
    """

    step_seconds: float
    tokens_per_second: float
    parts: Mapping[str, float] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    error: SpeedError | None = None


def on_grid(seconds: float) -> float:
    """Round to the nearest power of 1.01. Returns 0 if `seconds` is not positive."""
    return float(_GRID ** round(log(seconds) / log(_GRID))) if seconds > 0 else 0.0


def no_speed(run: RunSpec, model: ModelSpec | None = None) -> str:
    """Return the reason why there is no speed estimate for this run, or "" if there is one."""
    if model is not None and model.reads == "both":
        return "no speed estimate: the time of models with an encoder and a decoder is not modelled"
    if run.target.gpu is None:
        return "no speed estimate: use --gpu"
    if rates_of(run.target.gpu) is None:
        return f"no speed estimate: the rates of {run.target.gpu.name} are unknown"
    if run.objective.generation_rows is not None:
        return "no speed estimate: the time to generate completions is not modelled"
    if run.kernels.torch_compile and (model is None or compiled_program(run, model) is None):
        return "no speed estimate: what torch.compile fuses is not modelled for this run"
    return ""


def speed_of(
    run: RunSpec,
    model: ModelSpec,
    shapes: Sequence[BatchShape] = (),
    sample_tokens: int | None = None,
    effort: Effort | None = None,
) -> Speed | None:
    """Return the estimated speed of the run on its GPU, or None if there is no estimate (`no_speed` gives the reason).

    `shapes`: the micro-batches of training; by default the widest that the settings allow. `sample_tokens`: the average
    length of a sample, which determines the cost of attention in packed rows. `effort`: counts the work.
    """
    rates = rates_of(run.target.gpu)
    if rates is None or no_speed(run, model):
        return None
    found = list(shapes) or train_shapes(run, None)
    steps = [
        (timed(run, model, shape, rates, efficiency(run.trainer), sample_tokens, effort), count)
        for shape, count in standing_for(found)
    ]
    total = sum([count for _, count in steps])
    seconds = on_grid(sum([step.seconds * count for step, count in steps]) / total)
    families = sorted({family for step, _ in steps for family in step.parts})
    tokens = sum([shape.rows * shape.width for shape in found]) / len(found) * run.batch.gradient_accumulation_steps
    return Speed(
        step_seconds=seconds,
        tokens_per_second=tokens * run.batch.data_parallel / seconds,
        parts={name: sum([step.parts.get(name, 0.0) * count for step, count in steps]) / total for name in families},
        assumptions=_assumptions(run, rates, sample_tokens),
        # all measured runs used a single GPU
        error=None if run.batch.gpus > 1 else SpeedError(**measured_error()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """The seconds of a step, and its parts: the kernel families and the rest, "waiting for the host"."""

    seconds: float
    parts: dict[str, float]


def timed(
    run: RunSpec,
    model: ModelSpec,
    shape: BatchShape,
    rates: Rates,
    costs: Efficiency,
    sample_tokens: int | None = None,
    effort: Effort | None = None,
) -> Timed:
    """Return the time of a step with micro-batches of this shape."""
    work = list_step(run, model, shape, sample_tokens)
    if effort is not None:
        effort.spend(KERNEL * work.kernels)
    return priced(work, run.batch.gradient_accumulation_steps, rates, costs)


def priced(work: StepWork, micro_steps: int, rates: Rates, costs: Efficiency) -> Timed:
    """Return the time of a step's listed work.

    The micro-steps between the first and the last are identical, so one of them is timed for all.
    """
    queues = Queues(rates, costs)
    between = max(0, micro_steps - len(work.micro_steps))
    for position, stretches in enumerate(work.micro_steps):
        before = queues.now
        turns = 1 + (between if position == min(1, len(work.micro_steps) - 1) else 0)
        queues.host_works(costs.host_micro_step + work.tensors * costs.host_tensor)
        queues.run(stretches, turns)
        queues.drain()
        queues.later((queues.now - before) * (turns - 1))
    queues.host_works(costs.host_step + work.tensors * costs.host_tensor)
    queues.run(work.update)
    queues.drain()
    parts = dict(queues.parts)
    rest = queues.now - sum(parts.values())
    parts["waiting for the host"] = max(0.0, rest)
    return Timed(seconds=queues.now, parts=parts)


def standing_for(shapes: Sequence[BatchShape]) -> list[tuple[BatchShape, int]]:
    """Return each shape with its count. If there are many, return the middle shape of each of a few groups by size."""
    counted = Counter(shapes)
    if len(counted) <= _MOST_SHAPES:
        return sorted(counted.items())
    ordered = sorted(shapes, key=lambda shape: (shape.rows * shape.width, shape))
    edges = [len(ordered) * part // _MOST_SHAPES for part in range(_MOST_SHAPES + 1)]
    groups = [ordered[start:end] for start, end in pairwise(edges)]
    return [(group[len(group) // 2], len(group)) for group in groups]


def _assumptions(run: RunSpec, rates: Rates, sample_tokens: int | None) -> tuple[str, ...]:
    said = [f"published, not measured, peak rates of {rates.name}; {efficiency_basis(run.trainer)}"]
    if sample_tokens is None and samples_apart(run):
        said.append(f"packed rows are assumed to hold samples of {usual_sample(run):,} tokens, half of sequence_len")
    if run.batch.gpus > 1:
        way = "NVLink" if rates.link > rates.pcie else "PCIe"
        said.append(
            f"the speed of several GPUs is not measured: exchanges at {rates.link / 1e9:,.0f} GB/s ({way}, published), "
            "all GPUs in one machine"
        )
    return tuple(said)
