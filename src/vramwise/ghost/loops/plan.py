"""What a ghost run will do: its steps and evaluations by shape.

Parallelism that changes shapes is applied here: tensor parallelism divides heads and feed-forward widths, context
parallelism divides the tokens of a row.
"""

from __future__ import annotations

from dataclasses import replace

from vramwise.ghost.loops.batches import BatchShape, Widths, as_shapes, largest
from vramwise.ghost.loops.steps import FEWEST_DIFFERENT, Plan, emptying_of
from vramwise.types import ModelSpec, RunSpec

# steps until nothing changes: states appear in the first, and the second is the first to run with them
_STEADY_STEPS = 3

# Limit on the batches of all evaluations and of the steps between them, times the model's layers.
_LAYERS_IN_EVALS = 4096
_FEWEST_EVALS = 3


def make_plan(
    run: RunSpec, widths: Widths | None, eval_widths: Widths | None, steps: int | None, layers: int = 1
) -> Plan:
    """Return steps and evaluations; `steps` defaults to what the widths give or the steady state needs."""
    micro = as_shapes(run, widths) or [largest(run)]
    each = run.batch.gradient_accumulation_steps
    count = steps or (max(len(micro) // each, 1) if widths else _STEADY_STEPS)
    context = run.sharding.context_parallel_size
    micro = [_share(shape, context) for shape in micro]
    evals, skipped = _evals(run, eval_widths, count, layers)
    plan = Plan(micro, each, count, evals, layers, emptying_of(run, evals))
    if skipped:
        plan.said.append(f"{skipped:,} of {count:,} steps' evaluations are skipped: they repeat earlier ones")
    return plan


def _share(shape: BatchShape, ranks: int) -> BatchShape:
    return shape if ranks <= 1 else shape._replace(width=max(1, -(-shape.width // ranks)))


def _evals(run: RunSpec, widths: Widths | None, steps: int, layers: int) -> tuple[dict[int, list[BatchShape]], int]:
    """Return the batches of each evaluation by its step, and how many are skipped.

    Of too many, the first ones and the last are kept.
    """
    if not run.evaluation.evaluates or run.evaluation.eval_batch_size is None:
        return {}, 0
    # two batches of the same shape: the second reuses what the first left
    shapes = as_shapes(run, widths, evaluation=True) or [largest(run, evaluation=True)] * 2
    shapes = [_share(shape, run.sharding.context_parallel_size) for shape in shapes]
    every = (
        int(run.evaluation.eval_steps)
        if run.evaluation.eval_steps and 1 <= run.evaluation.eval_steps < steps
        else steps
    )
    most = max(_FEWEST_EVALS, _LAYERS_IN_EVALS // layers // (len(shapes) + FEWEST_DIFFERENT))
    # the trainer evaluates once more when it stops
    before_last = range(every, steps, every)
    found = dict.fromkeys((*before_last[: most - 1], steps), shapes)
    if run.evaluation.eval_on_start:
        found[0] = shapes
    return found, max(0, len(before_last) - most + 1)


def local_model(run: RunSpec, model: ModelSpec) -> ModelSpec:
    """Return the share of one rank in a tensor-parallel group: its heads and feed-forward widths."""
    ranks = run.sharding.tensor_parallel_size
    if ranks <= 1:
        return model
    return replace(
        model,
        num_attention_heads=max(1, model.num_attention_heads // ranks),
        num_key_value_heads=max(1, model.num_key_value_heads // ranks),
        intermediate_size=max(1, model.intermediate_size // ranks),
        moe_intermediate_size=model.moe_intermediate_size // ranks,
        shared_expert_intermediate_size=model.shared_expert_intermediate_size // ranks,
    )
