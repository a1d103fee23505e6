"""The training process: `python -m vramwise.training.worker.main PLAN.json`.

Sets the plan's variables before torch is imported, trains, saves. Exit codes: 0 done, 75 out of memory (`oom.json`
says where), 130 and 143 after a signal with a checkpoint saved, 2 for what the user can fix, 1 for everything else.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from vramwise.documents.document import parse_document
from vramwise.errors import VramwiseError
from vramwise.opening.stacks import make_stack
from vramwise.opening.subject import on_target
from vramwise.opening.targets import make_target
from vramwise.trainers.registry import running, trainer_named
from vramwise.training.checkpoints import saving
from vramwise.training.embedded import translated
from vramwise.training.plan import EXIT_OUT_OF_MEMORY, PredictedMemory, TrainPlan, read_plan
from vramwise.training.worker.leaving import leave_done, leave_now
from vramwise.types import RunSpec


def main(arguments: list[str]) -> int:
    """Train by the plan in a file; return the exit code."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m vramwise.training.worker.main PLAN.json\n")
        return 2
    try:
        plan = read_plan(arguments[0])
        os.environ.update(plan.environment)
        with saving(plan.output_dir, "the run's records", probe=False):  # saving models reports this itself
            return train_by(plan)
    except VramwiseError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2


def run_of(plan: TrainPlan) -> RunSpec:
    """Return the run as the parent resolved it: the config's text with the plan's decisions."""
    document = parse_document(plan.config_path, plan.config_text.encode("utf-8"))
    trainer = running(trainer_named(plan.trainer or plan.engine), plan.engine)
    target = dict(plan.target)
    stack = make_stack(trainer.package, trainer.releases(), said=target.pop("versions", ()), look_around=False)
    subject = on_target(document, trainer, make_target(stack=stack, env={}, look_around=False, **target))
    return translated(subject.run).changed(
        micro_batch_size=plan.micro_batch_size,
        gradient_accumulation_steps=plan.gradient_accumulation_steps,
        effective_batch_size=plan.effective_batch_size,
        eval_batch_size=plan.eval_batch_size,
        pad_multiple=plan.pad_multiple,
        precision=plan.precision,
        weights_dtype=plan.weights_dtype,
        autocast=plan.autocast,
    )


def train_by(plan: TrainPlan) -> int:
    """Train and return the exit code; torch is imported from here on."""
    from vramwise.training.guard import oom
    from vramwise.training.guard.oom import keep_limit
    from vramwise.training.parent.child import announce

    Path(plan.output_dir).mkdir(parents=True, exist_ok=True)
    announce(plan.output_dir)
    keep_limit(plan)
    from vramwise.training.worker.engine_transformers import train
    from vramwise.training.worker.progress import Progress
    from vramwise.training.worker.stop import StopOnSignal

    _quiet()
    predicted = None if plan.predicted is None else plan.predicted.peak_reserved_bytes
    run, progress, stop = run_of(plan), Progress(predicted), StopOnSignal()
    try:
        train(
            run,
            plan,
            progress=progress,
            stopped=lambda: bool(stop.exit_code),
            callbacks=[stop],
            watch=lambda trainer: _guard(plan, run, trainer),
        )
    except Exception as error:
        if not oom.is_out_of_memory(error):
            raise
        _record(plan, error, progress.phase, progress.step)
        sys.stderr.write(f"out of memory in {progress.phase}: {str(error).partition(chr(10))[0]}\n")
        return leave_now(EXIT_OUT_OF_MEMORY)
    return leave_done(stop.exit_code)


def _record(plan: TrainPlan, error: Exception, phase: str, step: int | None) -> None:
    """Write the record, ignoring failures: the exit code alone is enough to recover."""
    from vramwise.training.guard import oom

    try:
        oom.record(plan, error, phase, step=step)
    except Exception as failure:
        sys.stderr.write(f"what the memory held cannot be written down: {type(failure).__name__}: {failure}\n")


def _quiet() -> None:
    """Turn off progress bars: we print one line per log."""
    from transformers.utils import logging

    logging.disable_progress_bar()


def _guard(plan: TrainPlan, run: RunSpec, trainer: Any) -> list[Any]:
    if not plan.guard.enabled:
        return []
    from vramwise.training.guard.callback import MemoryGuard

    plan = replace(plan, predicted=_expected(plan, run, trainer))

    width = run.shapes.pad_multiple * -(-run.shapes.sequence_len // run.shapes.pad_multiple)
    rows = plan.micro_batch_size if run.shapes.packing_rows == "one" else 1
    return [MemoryGuard.for_plan(plan, max_width=width * rows)]


def _expected(plan: TrainPlan, run: RunSpec, trainer: Any) -> PredictedMemory | None:
    """Return the prediction with the real rows. Packed rows are full anyway, so their prediction stays."""
    if plan.predicted is None or run.shapes.sample_packing:
        return plan.predicted
    from vramwise.training.parent import expected
    from vramwise.training.worker.progress import say

    try:
        lengths, eval_lengths = trainer.batch_lengths()
        steps = trainer.steps_of_run()
        prediction = expected.with_real_lengths(run, plan, lengths, eval_lengths, steps)
    except Exception as error:  # a failing prediction must not end the training
        sys.stderr.write(f"memory is not predicted for the real lengths: {type(error).__name__}: {error}\n")
        return plan.predicted
    if trainer.is_world_process_zero():
        say(expected.sentence(prediction, plan.predicted))
    return expected.memory_of(prediction)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
