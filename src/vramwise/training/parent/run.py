"""The verb `train`: prepares, stops or continues, and hands over to the engine. Parent process: no torch.

For a run that does not fit, it shows changes that keep the training result and make it fit, each with its prediction.
The search is that of `fit`; what was decided about this start beyond the config stays.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.opening.subject import Subject
from vramwise.training.parent.engines import ATTEMPTS
from vramwise.training.parent.expected import memory_of, of_plan, predict_plan, predicted_decision
from vramwise.training.parent.prepare import Prepared, TrainOptions, prepare
from vramwise.training.parent.replacing import refuse_replacing
from vramwise.training.plan import PredictedMemory, TrainPlan
from vramwise.training.worker.longest import longest_samples
from vramwise.types import Change, RunSpec
from vramwise.units import gib
from vramwise.variants.attempt import Attempt
from vramwise.variants.axes import opened
from vramwise.verbs.drafts import Adjust
from vramwise.verbs.fitting.fastest import fit_subject, keeping_result

STOPPED = 1
Say = Callable[[str], None]


def train(path: str, options: TrainOptions | None = None, *, say: Say | None = None) -> int:
    """Train one config. Returns 0: finished; 1: stopped before the first step; else the engine's exit code."""
    options = options or TrainOptions()
    say = say or _print
    if path == "-":
        raise VramwiseError("train needs a file: standard input cannot be read again after a restart")
    prepared = prepare(path, options)
    replacing = refuse_replacing(prepared.run, prepared.plan)
    return _started(prepared, options, say, replacing)


def train_script(words: Sequence[str], options: TrainOptions | None = None, *, say: Say | None = None) -> int:
    """Run `train.py ARGUMENTS…`, or a launch line that runs a script, guarded. Exit codes as in `train`."""
    from vramwise.training.parent.prepare_script import prepare_script

    options = options or TrainOptions()
    return _started(prepare_script(words, options), options, say or _print)


def _started(prepared: Prepared, options: TrainOptions, say: Say, replacing: str = "") -> int:
    if not options.force and _width_follows_data(prepared):
        prepared = with_longest_samples(prepared, options, say)
    if not _may_start(prepared, options, say):
        return STOPPED
    for line in (*decision_lines(prepared.plan), *([replacing] if replacing else ())):
        say(line)
    from vramwise.training.parent.supervise import supervise

    return supervise(
        prepared.plan,
        say=say,
        advise=lambda plan: advice(prepared, plan, options),
        predict=lambda plan: prediction_of_restart(prepared, plan),
        fits=lambda failed, candidate, facts: would_fit(prepared, failed, candidate, facts),
        command=ATTEMPTS[prepared.plan.engine],
    )


def _width_follows_data(prepared: Prepared) -> bool:
    """Return whether a run does not fit at widths that its data may never reach."""
    run = prepared.run
    misfit = prepared.prediction is not None and prepared.prediction.memory_fits is False and not prepared.errors
    return (
        misfit
        and prepared.plan.engine == "transformers"
        and not (run.shapes.constant_shapes or run.shapes.sample_packing)
    )


def with_longest_samples(prepared: Prepared, options: TrainOptions, say: Say) -> Prepared:
    """Predict again with every batch as wide as the longest sample, which no batch of this data exceeds."""
    run, model = prepared.run, prepared.model
    assert model is not None
    say(f"does not fit with rows of sequence_len {run.shapes.sequence_len}; reading how long the samples are")
    try:
        longest, longest_eval = longest_samples(prepared.plan)
    except VramwiseError as error:
        say(f"the lengths are not known: {error}")
        return prepared
    run = run.changed(sequence_len=longest)
    if run.evaluation.evaluates:
        run = run.changed(eval_sequence_len=longest_eval)
    subject = prepared.subject.with_run(run)
    prediction = subject.prediction(limit_bytes=options.memory_limit_bytes)
    memory = predicted_decision(prediction, prediction.verdict())  # as long as rows get
    memory = replace(memory, why=f"{memory.why}; the longest sample has {longest} tokens")
    decisions = tuple(memory if one.name == memory.name else one for one in prepared.plan.decisions)
    plan = replace(prepared.plan, predicted=memory_of(prediction), decisions=decisions)
    return replace(prepared, subject=subject, prediction=prediction, plan=plan)


def _may_start(prepared: Prepared, options: TrainOptions, say: Say) -> bool:
    path = prepared.document.path
    errors = prepared.errors
    for found in errors:
        say(f"{path}{f':{found.line}' if found.line else ''}: error {found.rule}: {found.message}")
    warnings = sum(found.severity.value == "warning" for found in prepared.findings)
    if warnings:
        say(f"{warnings} warning(s): vramwise check {path}")
    fits = prepared.prediction is None or prepared.prediction.memory_fits is not False
    if not fits:
        for line in misfit_lines(prepared, options):
            say(line)
    if (errors or not fits) and not options.force:
        remedy = f"fix it (vramwise fix {path})" if errors else "change the config as shown"
        say(f"not started; {remedy}, or start anyway with --force")
        return False
    return True


def decision_lines(plan: TrainPlan) -> list[str]:
    """Return what was decided and why, as one short block."""
    name = max(len(one.name) for one in plan.decisions)
    value = min(48, max(len(one.value) for one in plan.decisions))
    lines = [f"  {one.name.ljust(name)}  {one.value.ljust(value)}  {one.why}" for one in plan.decisions]
    start = "" if plan.resume_from is None else f", resuming {plan.resume_from}"
    return [f"vramwise train → {plan.output_dir}{start}", *lines]


def misfit_lines(prepared: Prepared, options: TrainOptions) -> list[str]:
    """Return why it does not fit, and what would help without changing the result."""
    prediction = prepared.prediction
    assert prediction is not None
    failed = prediction.report.out_of_memory
    where = "" if failed is None else f": {failed.label} in {failed.phase} of step {failed.step}"
    room = "" if prediction.capacity_bytes is None else f", there is room for {gib(prediction.capacity_bytes)}"
    rows = f" with rows of {prepared.run.shapes.sequence_len} tokens"
    head = f"does not fit{where}; needs {gib(prediction.needs.peak_reserved_bytes)} reserved{rows}{room}"
    return [head, *_remedy_lines(remedies(prepared.subject, options.memory_limit_bytes))]


def _remedy_lines(found: Sequence[Attempt]) -> list[str]:
    if not found:
        return []
    lines = ["changes that keep the training result:"]
    for one in found:
        assert one.prediction is not None
        verdict = "fits" if one.fits else "does not fit"
        size = gib(one.prediction.needs.peak_reserved_bytes).rjust(9)
        lines.append(f"  {size}  {verdict.ljust(12)}  {in_words(one)}")
    return lines


def advice(prepared: Prepared, plan: TrainPlan, options: TrainOptions) -> list[str]:
    """Return what else would help if the batches cannot be made smaller."""
    if prepared.model is None:
        return []
    subject = prepared.subject.with_run(of_plan(prepared.run, plan))
    return _remedy_lines(remedies(subject, options.memory_limit_bytes))


def prediction_of_restart(prepared: Prepared, plan: TrainPlan) -> PredictedMemory | None:
    """Predict a restart with other batch sizes; None if the first attempt had no prediction either."""
    if prepared.prediction is None or prepared.model is None:
        return None
    return memory_of(predict_plan(prepared.run, prepared.model, plan))


def would_fit(prepared: Prepared, failed: TrainPlan, candidate: TrainPlan, facts: Mapping[str, Any]) -> bool | None:
    """Return whether a restart with these batches is predicted to fit where another attempt ran out of memory.

    The capacity is what was available at that moment. If the failed attempt had been predicted to fit in it, the
    prediction is too low by an unknown amount, so it cannot judge a restart either (None).
    """
    if prepared.prediction is None or prepared.model is None:
        return None
    bounds = (_room_seen(facts), prepared.prediction.capacity_bytes)
    room = min((bound for bound in bounds if bound is not None), default=None)
    if room is None:
        return None
    needs = [predict_plan(prepared.run, prepared.model, plan).needs.peak_reserved_bytes for plan in (failed, candidate)]
    return None if needs[0] <= room else needs[1] <= room


def _room_seen(facts: Mapping[str, Any]) -> int | None:
    """Return what the allocator held plus the free memory when the request failed."""
    held, free = facts.get("reserved_bytes"), facts.get("device_free_bytes")
    return held + free if isinstance(held, int) and isinstance(free, int) else None


def remedies(subject: Subject, limit_bytes: int | None = None) -> list[Attempt]:
    """Return the fastest change that fits, then slower ones that need less; if nothing fits, the closest."""
    found = fit_subject(subject, limit_bytes=limit_bytes, adjust=_decided(subject), axes=keeping_result(opened()))
    if found.best is not None:
        return [one.attempt for one in (found.best, *found.alternatives)]
    nearer = found.closest is not None and found.closest.changes
    return [found.closest.attempt] if found.closest is not None and nearer else []


def _decided(subject: Subject) -> Adjust:
    """Return a function that keeps this start's decisions: dtypes, lengths of the data, the allocator."""
    now = subject.run

    def adjust(run: RunSpec, changes: Sequence[Change]) -> RunSpec:
        same = run.allocator.settings == subject.target.alloc_conf or not any(
            "allocator" in one.fields for one in changes
        )
        return run.changed(
            allocator=now.allocator.settings if same else run.allocator.settings,
            precision=now.precision.compute,
            weights_dtype=now.precision.weights_dtype,
            autocast=now.precision.autocast,
            sequence_len=now.shapes.sequence_len,
            eval_sequence_len=now.evaluation.eval_sequence_len if run.evaluation.evaluates else None,
        )

    return adjust


def in_words(tried: Attempt) -> str:
    """Return the change as written in the config or on the command line, and what to change by hand in a script."""
    words = [f"{edit.key}: {_value(edit.value)}" for edit in tried.edits]
    words += tried.by_hand
    words += [f"--alloc-conf {one.fields['allocator']}" for one in tried.changes if "allocator" in one.fields]
    other = " (same mathematics, other kernels)" if any(one.effect == "rounding" for one in tried.changes) else ""
    return ", ".join(words) + other


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
