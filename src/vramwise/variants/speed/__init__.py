"""How long a step takes: the work of each operation against a card's rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vramwise.facts.parameters import parameters
from vramwise.ghost.loops.batches import BatchShape, largest
from vramwise.types import ModelSpec, RunSpec

# What an H200 does in bf16, of dense products of real sizes.
_FLOPS = 600e12


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedError:
    """How far step times were off on measured runs that calibration did not see, in per cent."""

    runs: int
    median: float
    worst: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """One optimizer step. Tokens are those of the batches, padding included, over all GPUs.

    `parts`: seconds by kind of work. Seconds stand on a grid of 1 %: nothing finer is claimed.
    """

    step_seconds: float
    tokens_per_second: float
    parts: Mapping[str, float] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    error: SpeedError | None = None


def speed_of(run: RunSpec, model: ModelSpec, shapes: Sequence[BatchShape] = ()) -> Speed | None:
    """How fast the run trains on its card; None where the card's rates are not known."""
    if run.target.gpu is None:
        return None
    shape = max(shapes) if shapes else largest(run)
    tokens = shape.rows * shape.width * run.gradient_accumulation_steps
    weights = sum(parameter.numel for parameter in parameters(model))
    passes = (4 if run.adapter else 6) + (2 if run.recompute else 0)
    seconds = passes * weights * tokens / _FLOPS
    return Speed(step_seconds=seconds, tokens_per_second=tokens * run.data_parallel / seconds)
