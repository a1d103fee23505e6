"""Lower bounds of a run's memory: a run or a variant whose bound exceeds the card does not fit.

`lower_bound_bytes` simulates two runs with few layers. The memory in use at any moment grows linearly with the number
of layers. The peak is a maximum of such lines and is therefore convex: the line through two small depths lies below it
at all larger depths. A model with few layers is simulated as it is.

`weights_alone_bytes` counts only the weights. It holds for all variants that some words of --allow permit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import cast

from vramwise.ghost.loops.batches import BatchShape
from vramwise.ghost.loops.sft import ghost_run
from vramwise.models.parameters import parameter_count
from vramwise.timeline import Action, Timeline
from vramwise.types import ModelSpec, RunSpec
from vramwise.variants.batches import eval_shapes, train_shapes
from vramwise.variants.effort import Effort, ghost_units
from vramwise.variants.speed.depth import two_depths
from vramwise.variants.speed.timed_step import Asked

_ROUNDED = 512
# A model with at most this many layers is simulated as it is. If neighbouring layers matter, a line needs six layers.
_FEW_LAYERS = 8
_ALLOC, _FREE, _PHASE = int(Action.ALLOC), int(Action.FREE), int(Action.PHASE)


def lower_bound_bytes(
    run: RunSpec,
    model: ModelSpec,
    shapes: Sequence[BatchShape] = (),
    evals: Sequence[BatchShape] = (),
    effort: Effort | None = None,
) -> int:
    """Return a lower bound of the run's peak allocated bytes, or 0 if a deep model's layers have no usable pattern.

    `shapes`, `evals`: the batches of training and evaluation; by default the widest that the settings allow.
    `effort`: counts the work, including work that was cached from another run.
    """
    depths = two_depths(run, model)
    if depths is None and model.num_hidden_layers > _FEW_LAYERS:
        return 0
    first, second, turns = depths or (model, model, 0)
    train = max(shapes or train_shapes(run, None), key=_size)
    found = evals or eval_shapes(run, None)
    few = run.changed(gradient_accumulation_steps=min(run.batch.gradient_accumulation_steps, 2))
    if not found:
        few = few.changed(evaluates=False, eval_batch_size=None)
    wide = max(found, key=_size) if found else None
    (low, less_work), (high, more_work) = (_peaks(Asked(few, small, train, wide)) for small in (first, second))
    if effort is not None:
        effort.spend(less_work + more_work)
    # each phase has its own line
    return max([less + turns * (more - less) for less, more in zip(low, high, strict=True)])


def _size(shape: BatchShape) -> int:
    return shape.rows * shape.width


@lru_cache(maxsize=1024)
def _peaks(asked: Asked) -> tuple[tuple[int, ...], int]:
    """Return the peak allocated bytes of each phase of two steps, and the work that it took.

    Two steps are simulated, because the optimizer's states exist from the start only in the second.
    """
    run, (train, evaluation) = asked.run, cast("tuple[BatchShape, BatchShape | None]", asked.more)
    evals = [] if evaluation is None else [evaluation]
    timeline, _ = ghost_run(run, asked.model, widths=[train], eval_widths=evals, steps=2, gpu=run.target.gpu)
    return tuple(_highest(timeline)), ghost_units(timeline)


def _highest(timeline: Timeline) -> list[int]:
    """Return the peak allocated bytes of each phase after loading, rounded up to whole blocks."""
    live = most = 0
    found: list[int] = []
    for action, _, size, _, _ in timeline.events:
        if action == _ALLOC:
            live += -(-size // _ROUNDED) * _ROUNDED
            if live > most:
                most = live
        elif action == _FREE:
            live -= -(-size // _ROUNDED) * _ROUNDED
        elif action == _PHASE:
            found.append(most)
            most = live
    # skip the empty part before the first phase, and the first phase, which is loading
    return [*found[2:], most]


def weights_alone_bytes(run: RunSpec, model: ModelSpec | None, allow: Sequence[str] = ()) -> int:
    """Return the least memory of the weights, and of their gradients if all are trained.

    It holds for all variants that these words permit. 0 if parts of the weights may be elsewhere, or without a model.
    """
    whole = run.sharding.kind == "ddp" or run.batch.gpus == 1  # a single card holds every shard
    if model is None or run.savings.layer_offloading or run.sharding.offload_params or not whole:
        return 0
    quantised = run.loading.quantization is not None or "qlora" in allow or model.num_experts
    adapted = run.adapter.kind is not None or "lora" in allow
    # some weights are frozen, gradient shards may be elsewhere, or the optimizer frees gradients one by one
    partly = (
        run.adapter.unfrozen
        or run.adapter.trained_blocks is not None
        or run.unfollowed
        or re.search("layer|lomo", run.optimizer.name)
    )
    whole_gradients = not partly and run.sharding.kind in ("none", "ddp")
    each = 0.5 if quantised else 2 if adapted or not whole_gradients else 4
    return int(each * parameter_count(model))


def proof_bytes(run: RunSpec, model: ModelSpec | None, allow: Sequence[str], room_bytes: int) -> int:
    """Return what the weights alone need, if that proves that nothing fits which these words permit; otherwise 0."""
    needed = weights_alone_bytes(run, model, allow)
    return needed if needed > room_bytes else 0
