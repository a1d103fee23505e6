"""Selects the batches to simulate and the number of steps: all, or the first and the widest if all take too long."""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.ghost.loops.batches import BatchShape
from vramwise.types import ModelSpec, RunSpec
from vramwise.types.actions import action
from vramwise.variants.batches import eval_shapes, first_and_widest, train_shapes
from vramwise.variants.lengths import Lengths

# The default number of batches of --lengths to simulate: enough to cover the widths, and a few seconds at most.
_MOST_BATCHES = 64
# The limit on batches of different shapes × layers, which time and memory depend on: seconds, and hundreds of
# megabytes.
_LAYERS_SIMULATED = 2048
_LAYERS_SIMULATED_ON_REQUEST = 4096
_FEWEST_BATCHES = 4


def simulated_batches(
    run: RunSpec, model: ModelSpec, lengths: Lengths | None, eval_lengths: Lengths | None, steps: int | None
) -> tuple[list[BatchShape], list[BatchShape], int, list[str]]:
    """Return the batches of training and evaluation, the number of steps, and notes.

    If all would take too long, only the first batches and the widest are used, and a note says so.
    """
    said = []
    train, evals = train_shapes(run, lengths), eval_shapes(run, eval_lengths)
    each, layers = run.batch.gradient_accumulation_steps, model.num_hidden_layers
    most = max(_FEWEST_BATCHES, min(_MOST_BATCHES, _LAYERS_SIMULATED // layers))
    known = len(train)
    if steps is None:
        train = first_and_widest(train, each, most)
        taken = _steps(train, each, lengths)
        if len(train) < known:
            said.append(
                f"{len(train)} of {known:,} micro-batches are simulated, the first and the widest: "
                f"{action('simulate more')}"
            )
    elif len(set(train)) > 1 and steps * each > (more := max(_FEWEST_BATCHES, _LAYERS_SIMULATED_ON_REQUEST // layers)):
        # Steps of the same shape are counted, not simulated one by one; these steps differ.
        train = first_and_widest(train, each, more)
        taken = min(steps, max(_steps(train, each, lengths), more // each))
        said.append(f"{taken:,} of {steps:,} steps are simulated: the first and the one with the widest batch")
    else:
        taken = steps
    known = len(evals)
    evals = first_and_widest(evals, 1, most)
    if len(evals) < known:
        said.append(f"{len(evals)} of {known:,} evaluation batches are simulated: the first and the widest")
    return train, evals, taken, said


def _steps(shapes: Sequence[object], each: int, lengths: Lengths | None) -> int:
    """Return enough steps to reach the steady peak; with lengths, one pass over them."""
    if lengths is None:
        return 3
    return max(3, len(shapes) // each)
