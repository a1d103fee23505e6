"""One training step of a model with few layers, listed kernel by kernel: what the whole model's step is made of."""

from __future__ import annotations

import gc
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from vramwise.families import layout_of
from vramwise.ghost.hardware import hardware_of
from vramwise.ghost.loops.batches import BatchShape
from vramwise.ghost.loops.kinds import loop_of
from vramwise.ghost.loops.plan import local_model, make_plan
from vramwise.ghost.sharding import sharding_of
from vramwise.ghost.tape import LIGER
from vramwise.ghost.work import Kernel, WorkTape
from vramwise.types import ModelSpec, RunSpec
from vramwise.variants.rehearsals import SEEN_BY_THE_GHOST
from vramwise.variants.speed.depth import Shallow, shallow

# The first micro-step makes gradients, others add to them; the last exchanges them with other cards.
_MICRO_STEPS, _MICRO_STEPS_SHARDED = 2, 3
# Samples that a packed row holds, where nothing is known of the data.
_SAMPLES_A_ROW = 2
# From here on collators say where the samples of a packed row begin; before, every layer asks the card.
_TELLS_SAMPLES = (5, 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Kernels one after the other that happen `times` times in a row: once, or once a layer."""

    kernels: Sequence[Kernel]
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """The stretches of a step: its micro-steps (the first, one of those between, the last) and the update."""

    micro_steps: tuple[tuple[Stretch, ...], ...]
    update: tuple[Stretch, ...]


class _Asked:
    """A question for `_listed`: equal where the ghost run would be."""

    __slots__ = ("_key", "model", "run", "sample", "shape")

    def __init__(self, run: RunSpec, model: ModelSpec, shape: BatchShape, sample: int | None, key: Hashable) -> None:
        self.run, self.model, self.shape, self.sample = run, model, shape, sample
        self._key = key

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Asked) and self._key == other._key


def samples_apart(run: RunSpec) -> bool:
    """Whether rows hold several samples that do not attend to one another."""
    return run.packing_rows != "none" and run.samples_apart


def usual_sample(run: RunSpec) -> int:
    """How long a sample of a packed row is taken to be where nothing is known of the data."""
    return max(1, run.sequence_len // _SAMPLES_A_ROW)


def rehearse(run: RunSpec, model: ModelSpec, shape: BatchShape, sample_tokens: int | None = None) -> StepWork:
    """The kernels of one step with micro-batches of that shape; worked out once for runs that are alike in it."""
    sample = (sample_tokens or usual_sample(run)) if samples_apart(run) else None
    most = _MICRO_STEPS if run.sharding == "none" and run.data_parallel == 1 else _MICRO_STEPS_SHARDED
    run = replace(
        run,
        gradient_accumulation_steps=min(run.gradient_accumulation_steps, most),
        effective_batch_size=1,
        evaluates=False,
        eval_batch_size=None,
        micro_batch_size=1,
        sequence_len=run.sequence_len if run.rl else 1,
    )
    values = tuple([getattr(run, name) for name in SEEN_BY_THE_GHOST])
    versions = [run.target.stack.parts(name) for name in ("torch", "liger-kernel", "transformers")]
    key = (values, *versions, run.target.gpu, model, shape, sample)
    return _listed(_Asked(run, model, shape, sample, key))


@lru_cache(maxsize=1024)
def _listed(asked: _Asked) -> StepWork:
    run, model = asked.run, asked.model
    few = shallow(run, model)
    plan = make_plan(run, [asked.shape], None, 1, few.model.num_hidden_layers)
    collecting = gc.isenabled()
    gc.disable()
    try:
        liger = run.target.stack.parts("liger-kernel") or LIGER
        t = WorkTape(hardware_of(run.target.gpu, run.target.torch), liger)
        t.work.sample = asked.sample
        t.work.ranks = max(run.data_parallel, 1)
        if run.sharding in ("none", "ddp") and run.data_parallel > 1:
            t.work.sums_gradients = run.gradient_accumulation_steps
        t.work.told_samples = asked.sample is None or run.target.stack.parts("transformers") >= _TELLS_SAMPLES
        under_way = loop_of(run)(t, run, local_model(run, few.model), sharding_of(run))
        under_way.train(plan)
    finally:
        if collecting:
            gc.enable()
    return _in_stretches(t, few)


def _in_stretches(t: WorkTape, few: Shallow) -> StepWork:
    phases = t.work.phases
    starts = [position for position, name, _ in phases if name == "forward"][1:]
    update = next(position for position, name, _ in phases if name == "clip")
    ends = [*starts[1:], update]
    micro = tuple([_stretches(t, few, start, end) for start, end in zip(starts, ends, strict=True)])
    return StepWork(micro_steps=micro, update=_stretches(t, few, update, len(t.work.kernels)))


def _stretches(t: WorkTape, few: Shallow, start: int, end: int) -> tuple[Stretch, ...]:
    """Neighbouring kernels of one layer together."""
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
