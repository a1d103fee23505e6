"""Before a script's first step: what is read from it, predicted and decided, as a plan. Nothing is run here."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vramwise.errors import VramwiseError
from vramwise.opening.subject import Subject, open_subject
from vramwise.trainers.launch import read_launch
from vramwise.training.parent import decide
from vramwise.training.parent.engine_script import SCRIPTS, command_of, site_of_python
from vramwise.training.parent.prepare import Prepared, TrainOptions, memory_decision, plan_of, predict_subject
from vramwise.training.parent.resuming import Wanted, decide_start, settings_of
from vramwise.training.plan import Decision
from vramwise.verbs.check import check_subject, policy_for

_DEFAULT_SEED = 42
_NOT_OURS = {"--engine": "engine", "--random-weights": "random_weights"}


def prepare_script(words: Sequence[str], options: TrainOptions) -> Prepared:
    """Read, check, predict and plan the training of `train.py ARGUMENTS…`, or of a launch line that runs a script."""
    command, path, arguments = command_of(words)
    for name, attribute in _NOT_OURS.items():
        if getattr(options, attribute):
            raise VramwiseError(f"{name} is not possible with a script: {path} decides that itself")
    subject = _open(words, command, path, arguments, options)
    report = check_subject(subject, policy_for(path, options.target, predicts=False))
    if report.error is not None:
        raise report.error
    environment, settings, allocator = decide.decide_allocator(subject.run.target)
    run = subject.run.changed(allocator=settings)
    subject = subject.with_run(run)
    prediction = predict_subject(subject, options)
    options = replace(options, engine=SCRIPTS)
    output = output_of(subject, path)
    wanted = Wanted(
        named=options.resume_from,
        named_by="--resume-from",
        last=options.resume,
        hosted=True,
        force=options.force,
        fresh=True,  # a script itself decides what to do about old checkpoints
    )
    start = decide_start(wanted, output, settings_of(run, _DEFAULT_SEED))
    decisions = [
        Decision(name="engine", value=SCRIPTS, why=f"{shlex.join((*command, path))}, as it is"),
        allocator,
        decide.decide_batch(run),
        decide.decide_eval(run),
        decide.decide_shapes(run),
        memory_decision(subject, prediction),
        *_left_open(subject),
        *start.decisions,
    ]
    plan = plan_of(subject.document, run, options, environment, prediction, decisions)
    plan = replace(
        plan,
        output_dir=output,
        command=command,
        arguments=arguments,
        resume_from=start.checkpoint,
        run=start.run,
    )
    return Prepared(subject=subject, plan=plan, findings=report.findings, prediction=prediction)


def _open(
    words: Sequence[str], command: Sequence[str], path: str, arguments: Sequence[str], options: TrainOptions
) -> Subject:
    launched = None if words[0] == path else read_launch(words).gpus
    target = replace(
        options.target,
        site=site_of_python(command),
        # A script that is started directly trains in one process.
        gpus=options.target.gpus or launched or 1,
        script_args=shlex.join(arguments),
    )
    return open_subject(path, target)


def output_of(subject: Subject, path: str) -> str:
    """Return where the records of a run go: the script's output folder, else one named after the script."""
    named = subject.run.config.get("output_dir")
    folder = Path(named) if isinstance(named, str) and named else Path(f"{Path(path).stem}-vramwise")
    return str(folder.absolute())


def _left_open(subject: Subject) -> list[Decision]:
    """Return what could not be read from the script, for which the prediction used defaults."""
    script = subject.document.script
    names = [] if script is None else list(dict.fromkeys(one.key for one in script.unsaid))
    if not names:
        return []
    return [Decision(name="not read", value=", ".join(names[:6]), why="known only while the script runs")]
