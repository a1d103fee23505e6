"""Which batches of a run are simulated, in how many steps: all, or the first and the widest where all take too long."""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.actions import action
from vramwise.ghost.loops.batches import BatchShape
from vramwise.types import ModelSpec, RunSpec
from vramwise.variants.batches import eval_shapes, first_and_widest, train_shapes
from vramwise.variants.lengths import Lengths

# Batches of --lengths to simulate unless told how many: enough for every width to come, and seconds at most.
_MOST_BATCHES = 64
# Batches of different shapes times layers, which is what time and memory go by: seconds, some hundred megabytes.
_LAYERS_SIMULATED = 2048
_LAYERS_SIMULATED_ON_REQUEST = 4096
_FEWEST_BATCHES = 4


def simulated_batches(
    run: RunSpec, model: ModelSpec, lengths: Lengths | None, eval_lengths: Lengths | None, steps: int | None
) -> tuple[list[BatchShape], list[BatchShape], int, list[str]]:
    """The batches of training and of an evaluation, and the steps to take; where that would take too long, the first
    batches and the widest, and a word about it."""
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
        # Steps of one shape are counted, not simulated one by one; these are not.
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
    """Enough to reach the steady peak; with lengths, one pass over them."""
    if lengths is None:
        return 3
    return max(3, len(shapes) // each)
