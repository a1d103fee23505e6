"""A lower bound of the memory that a run asks for, from two runs with few layers.

What is live at any moment grows with the number of layers by a constant, so that the peak is a maximum of straight
lines, which is convex: the line through two small depths lies below it at all larger ones. A model that has few layers
itself is asked as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import cast

from vramwise.ghost.loops.batches import BatchShape
from vramwise.ghost.loops.sft import ghost_run
from vramwise.timeline import Action, Timeline
from vramwise.types import ModelSpec, RunSpec
from vramwise.variants.batches import eval_shapes, train_shapes
from vramwise.variants.effort import Effort, ghost_units
from vramwise.variants.speed.asked import Asked
from vramwise.variants.speed.depth import two_depths

_ROUNDED = 512
# Up to so many layers a model is its own small one: where neighbours have a say, six are needed to draw a line.
_FEW_LAYERS = 8
_ALLOC, _FREE, _PHASE = int(Action.ALLOC), int(Action.FREE), int(Action.PHASE)


def lower_bound_bytes(
    run: RunSpec,
    model: ModelSpec,
    shapes: Sequence[BatchShape] = (),
    evals: Sequence[BatchShape] = (),
    effort: Effort | None = None,
) -> int:
    """No more than the run has allocated at its peak; 0 where many layers follow no pattern.

    `shapes`, `evals`: the batches of training and evaluation; without them the widest that the settings allow.
    `effort`: where the work is counted, also what was done before for another run.
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
    # each phase has a line of its own
    return max([less + turns * (more - less) for less, more in zip(low, high, strict=True)])


def _size(shape: BatchShape) -> int:
    return shape.rows * shape.width


@lru_cache(maxsize=1024)
def _peaks(asked: Asked) -> tuple[tuple[int, ...], int]:
    """What is allocated at most in each phase of two steps (the second finds the optimizer's states), and what
    effort that took."""
    run, (train, evaluation) = asked.run, cast("tuple[BatchShape, BatchShape | None]", asked.more)
    evals = [] if evaluation is None else [evaluation]
    timeline, _ = ghost_run(run, asked.model, widths=[train], eval_widths=evals, steps=2, gpu=run.target.gpu)
    return tuple(_highest(timeline)), ghost_units(timeline)


def _highest(timeline: Timeline) -> list[int]:
    """The most bytes live at once in each phase after loading, in whole blocks."""
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
    # before the first phase there is nothing, the first is loading
    return [*found[2:], most]
