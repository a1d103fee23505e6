"""Lists the kernels of one training step, recorded on a model with few layers that represents the whole."""

from __future__ import annotations

import gc
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import cast

from vramwise.ghost.hardware import hardware_of
from vramwise.ghost.loops.batches import BatchShape
from vramwise.ghost.loops.kinds import begin
from vramwise.ghost.loops.steps import make_plan
from vramwise.ghost.work import Kernel, WorkTape
from vramwise.models.families import layout_of
from vramwise.models.parameters import parameters
from vramwise.types import ModelSpec, RunSpec
from vramwise.variants.simulate import SEEN_BY_THE_GHOST
from vramwise.variants.speed.depth import Shallow, shallow

# The first micro-step makes gradients, the others add to them, and the last exchanges them with other GPUs.
_MICRO_STEPS, _MICRO_STEPS_SHARDED = 2, 3
# Samples in a packed row if nothing is known about the data.
_SAMPLES_A_ROW = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A sequence of kernels that runs `times` times in a row: once, or once for each layer that it represents."""

    kernels: Sequence[Kernel]
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """The stretches of a step: its micro-steps (the first, one of those between, the last) and the update.

    `tensors`: the number of parameter tensors of the model, adapters included.
    """

    micro_steps: tuple[tuple[Stretch, ...], ...]
    update: tuple[Stretch, ...]
    tensors: int

    @property
    def kernels(self) -> int:
        """The number of listed kernels, without repetitions."""
        return sum([len(stretch.kernels) for part in (*self.micro_steps, self.update) for stretch in part])


def samples_apart(run: RunSpec) -> bool:
    """Return whether rows hold several samples that do not attend to one another."""
    return run.shapes.packing_rows != "none" and run.shapes.samples_apart


def usual_sample(run: RunSpec) -> int:
    """Return the assumed length of a sample in a packed row if nothing is known about the data."""
    return max(1, run.shapes.sequence_len // _SAMPLES_A_ROW)


def list_step(run: RunSpec, model: ModelSpec, shape: BatchShape, sample_tokens: int | None = None) -> StepWork:
    """Return the kernels of one step with micro-batches of this shape. The result is cached for equivalent runs."""
    sample = (sample_tokens or usual_sample(run)) if samples_apart(run) else None
    most = _MICRO_STEPS if run.sharding.kind == "none" and run.batch.data_parallel == 1 else _MICRO_STEPS_SHARDED
    run = run.changed(
        gradient_accumulation_steps=min(run.batch.gradient_accumulation_steps, most),
        effective_batch_size=1,
        evaluates=False,
        eval_batch_size=None,
        micro_batch_size=1,
        sequence_len=run.shapes.sequence_len if run.objective.rl else 1,
    )
    return _listed(Asked(run, model, shape, sample))


@lru_cache(maxsize=1024)
def _listed(asked: Asked) -> StepWork:
    run, model, (shape, sample) = asked.run, asked.model, cast("tuple[BatchShape, int | None]", asked.more)
    # GPUs that hold the whole model exchange gradients only in the last micro-step, which is otherwise like the others
    sums, wanted = (
        run.sharding.kind in ("none", "ddp") and run.batch.data_parallel > 1,
        run.batch.gradient_accumulation_steps,
    )
    if sums:
        run = run.changed(gradient_accumulation_steps=min(wanted, _MICRO_STEPS))
    t, few = record_step(run, model, shape, sample, sums_gradients=sums)
    found = _in_stretches(t, few, len(parameters(model)) + _added(run, t, few))
    if sums and wanted > _MICRO_STEPS:
        first, last = found.micro_steps
        found = replace(found, micro_steps=(first, tuple([_unsummed(stretch) for stretch in last]), last))
    return found


def record_step(
    run: RunSpec, model: ModelSpec, shape: BatchShape, sample: int | None, *, sums_gradients: bool = False
) -> tuple[WorkTape, Shallow]:
    """Record a step on a model with few layers. Returns the tape and the reduced model."""
    few = shallow(run, model)
    plan = make_plan(run, [shape], None, 1, few.model.num_hidden_layers)
    collecting = gc.isenabled()
    gc.disable()
    try:
        t = WorkTape(hardware_of(run.target.gpu, run.target.torch))
        t.work.sample = sample
        t.work.ranks = max(run.batch.data_parallel, 1)
        if sums_gradients:
            t.work.sums_gradients = run.batch.gradient_accumulation_steps
        t.work.told_samples = sample is None or run.kernels.samples_told
        under_way = begin(t, run, few.model)
        under_way.train(plan)
    finally:
        if collecting:
            gc.enable()
    return t, few


def _unsummed(stretch: Stretch) -> Stretch:
    """Return the stretch without exchanges of gradients."""
    return replace(stretch, kernels=[kernel for kernel in stretch.kernels if kernel.family != "reduce"])


def _added(run: RunSpec, t: WorkTape, few: Shallow) -> int:
    """Return the number of the adapter's tensors in the whole model: trained tensors that are not the model's own."""
    if run.adapter.kind is None:
        return 0
    update = next(position for position, name, _ in t.work.phases if name == "clip")
    trained = stretches_of(t, few, update, len(t.work.kernels))
    own = {parameter.name for parameter in parameters(few.model)}
    found = {kernel.about: stretch.times for stretch in trained for kernel in stretch.kernels if kernel.about}
    return sum([times for name, times in found.items() if name not in own])


def _in_stretches(t: WorkTape, few: Shallow, tensors: int) -> StepWork:
    phases = t.work.phases
    starts = [position for position, name, _ in phases if name == "forward"][1:]
    update = next(position for position, name, _ in phases if name == "clip")
    ends = [*starts[1:], update]
    micro = tuple([stretches_of(t, few, start, end) for start, end in zip(starts, ends, strict=True)])
    return StepWork(micro_steps=micro, update=stretches_of(t, few, update, len(t.work.kernels)), tensors=tensors)


def stretches_of(t: WorkTape, few: Shallow, start: int, end: int) -> tuple[Stretch, ...]:
    """Group consecutive kernels of the same layer into stretches."""
    layers: list[int | None] = [t.layer_of(tag) for tag in range(len(t.tags))]
    layout = layout_of(few.model)
    of_layer = re.compile(re.escape(layout.inside(few.model, layout.layers)) + r"\.(\d+)\.")
    found: list[tuple[int | None, list[Kernel]]] = []
    for kernel in t.work.kernels[start:end]:
        layer = layers[kernel.tag]
        if kernel.about:
            named = of_layer.match(kernel.about)
            layer = None if named is None else int(named[1])
        if found and (layer == -1 or layer == found[-1][0]):
            found[-1][1].append(kernel)
        else:
            found.append((None if layer == -1 else layer, [kernel]))
    return tuple([Stretch(kernels=own, times=1 if layer is None else few.counts[layer]) for layer, own in found])


class Asked:
    """A run, a model, and anything else that the result depends on. Equal keys have the same result."""

    __slots__ = ("_key", "model", "more", "run")

    def __init__(self, run: RunSpec, model: ModelSpec, *more: Hashable) -> None:
        self.run, self.model, self.more = run, model, more
        values = tuple([run.value(name) for name in SEEN_BY_THE_GHOST])
        self._key = (values, run.target.torch, run.target.gpu, model, more)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Asked) and self._key == other._key
