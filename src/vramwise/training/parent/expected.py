"""The expected memory of a run as a plan carries it, predicted again with the lengths of the real samples.

Before the data is read, every batch is assumed to be full and as wide as the config allows. The worker knows the rows:
with them, the widths (and the gaps that varying widths leave) and the attention mask of padded rows are predicted too.
Long runs are predicted in part: the first steps, and the step with the widest batch. Pure: no torch, no files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vramwise.models.known import find_model
from vramwise.timeline import MemoryReport
from vramwise.training.parent.decide import as_loaded
from vramwise.training.plan import Decision, PredictedMemory, PredictedPhase, TrainPlan
from vramwise.types import ModelSpec, RunSpec
from vramwise.units import gib
from vramwise.variants.lengths import Lengths
from vramwise.variants.prediction import Prediction, predict_run
from vramwise.variants.verdict import NAMES, Verdict

_FIRST_STEPS = 24
_FIRST_EVAL_BATCHES = 16


def predicted_decision(prediction: Prediction, verdict: Verdict) -> Decision:
    """Return the predicted memory and the capacity as a decision, with the verdict of `predict`."""
    from vramwise.render.doubt_text import doubt_lines  # late: the verbs are imported without click

    room = "" if prediction.capacity_bytes is None else f" of {gib(prediction.capacity_bytes)}"
    peak = expected_report(prediction)
    value = f"{gib(peak.peak_reserved_bytes)} reserved{room}"
    judged = "" if prediction.capacity_bytes is None else f": {NAMES[verdict.memory].lower()}"
    why = f"predicted{judged}; peak in {peak.peak_phase} of step {peak.peak_step}"
    return Decision(name="memory", value=value, why="; ".join([why, *doubt_lines(prediction, verdict)]))


def memory_of(prediction: Prediction) -> PredictedMemory:
    """Return a prediction as the guard compares it: within the limit if it fits, else with unlimited memory."""
    report, error = expected_report(prediction), prediction.expected_error
    return PredictedMemory(
        peak_allocated_bytes=report.peak_allocated_bytes,
        peak_reserved_bytes=report.peak_reserved_bytes,
        outside_bytes=report.outside_bytes,
        limit_bytes=prediction.capacity_bytes,
        phases=tuple(
            PredictedPhase(
                step=one.step,
                phase=one.phase,
                peak_allocated_bytes=one.peak_allocated_bytes,
                peak_reserved_bytes=one.peak_reserved_bytes,
            )
            for one in report.phases
        ),
        breakdown_bytes=dict(report.breakdown_bytes),
        expected_error=error.reserved_worst / 100 if error.applies else None,
    )


def expected_report(prediction: Prediction) -> MemoryReport:
    """Return the report of the run on the card if it fits, else what it would need."""
    return prediction.report if prediction.report.out_of_memory is None else prediction.needs


def of_plan(run: RunSpec, plan: TrainPlan) -> RunSpec:
    """Return a run with the batch sizes and the weights of a plan."""
    return as_loaded(run, random_weights=plan.random_weights).changed(
        micro_batch_size=plan.micro_batch_size,
        gradient_accumulation_steps=plan.gradient_accumulation_steps,
        eval_batch_size=plan.eval_batch_size,
    )


def predict_plan(
    run: RunSpec,
    model: ModelSpec,
    plan: TrainPlan,
    *,
    lengths: Lengths | None = None,
    eval_lengths: Lengths | None = None,
    steps: int | None = None,
) -> Prediction:
    """Predict one attempt. `run` is resolved for the machine; the batch sizes are the plan's."""
    return predict_run(
        of_plan(run, plan),
        model,
        lengths=lengths,
        eval_lengths=eval_lengths,
        steps=steps,
        limit_bytes=plan.memory_limit_bytes,
    )


def with_real_lengths(
    run: RunSpec, plan: TrainPlan, lengths: Sequence[int], eval_lengths: Sequence[int], max_steps: int
) -> Prediction:
    """Predict with the real rows, in tokens: `lengths` of this rank's epoch, in whole micro-batches."""
    card = plan.gpu_spec()
    run = run.changed(target=replace(run.target, gpu=card), allocator=plan.allocator)
    model = find_model(str(run.base_model), base_dir=Path(plan.config_path).parent)
    chosen, steps = first_and_widest(lengths, plan.micro_batch_size * plan.gradient_accumulation_steps, max_steps)
    evaluated: Lengths | None = None
    if plan.eval_batch_size and eval_lengths:
        tokens, _ = first_and_widest(eval_lengths, plan.eval_batch_size, len(eval_lengths), _FIRST_EVAL_BATCHES)
        evaluated = Lengths(tokens=tokens)
    return predict_plan(run, model, plan, lengths=Lengths(tokens=chosen), eval_lengths=evaluated, steps=steps)


def first_and_widest(lengths: Sequence[int], group: int, most: int, first: int = _FIRST_STEPS) -> tuple[list[int], int]:
    """Return the lengths of the first groups, and of the group with the longest row if later; and the group count.

    Only the first `most` groups happen at all; a group that the end of the epoch leaves unfinished still counts.
    """
    groups = [lengths[start : start + group] for start in range(0, len(lengths), group)][: max(1, most)]
    kept = list(groups[:first])
    later = groups[first:]
    if later and max(map(max, later)) > max(map(max, kept)):
        kept.append(max(later, key=max))
    return [tokens for one in kept for tokens in one], len(kept)


def sentence(prediction: Prediction, before: PredictedMemory) -> str:
    """Return what the real lengths changed, in one line."""
    reserved = expected_report(prediction).peak_reserved_bytes
    text = f"memory with the lengths of this data: {gib(reserved)} reserved (predicted; before: "
    text += f"{gib(before.peak_reserved_bytes)})"
    if prediction.memory_fits is False and prediction.capacity_bytes is not None:
        text += f"; there is room for {gib(prediction.capacity_bytes)}, so it may run out"
    return text
