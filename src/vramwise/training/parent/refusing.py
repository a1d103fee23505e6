"""What an engine cannot do, said before anything starts: every reason at once, and what to install or remove."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from vramwise.errors import VramwiseError
from vramwise.subject import Subject, open_subject
from vramwise.trainers.base import Trainer
from vramwise.training.parent.engine_trl import kind_with_a_command
from vramwise.training.parent.engines import EMBEDDED, read_by_embedded
from vramwise.training.parent.expected import predicted_decision
from vramwise.training.parent.extras import COMMANDS, TRAIN, install_lines, missing, trainer_command
from vramwise.training.parent.supported import needed_modules, unsupported
from vramwise.training.plan import Decision
from vramwise.training.sources import refuse_sources
from vramwise.variants.prediction import Prediction

if TYPE_CHECKING:
    from vramwise.training.parent.prepare import TrainOptions

Predict = Callable[[Subject], Prediction | None]


def refuse_file(path: str, owner: Trainer, options: TrainOptions, engine: Decision, predict: Predict) -> None:
    """A file whose keys the embedded engine does not know: it could honour none of them by name."""
    if read_by_embedded(owner):
        return
    keys = list(open_subject(path, options.target).document.values)
    lines = [
        f"  memory: {_foretold(path, options, predict)}",
        f"  {path}:1: its {len(keys)} keys are those of {owner.title}; the embedded engine reads Axolotl's",
        f"  engine: {engine.why}",
    ]
    if owner.name in COMMANDS:
        lines.append(f"  install {owner.title} and let it train: {install_lines([owner.name])}")
    raise VramwiseError(f"the embedded engine cannot train {path}: it is a file of {owner.title}", *lines)


def refuse_what_the_engine_cannot(path: str, subject: Subject, options: TrainOptions, predict: Predict) -> None:
    """Settings that cannot be honoured, options that are ours alone, and what is not installed."""
    if options.engine is not None and options.engine != EMBEDDED:
        _refuse_hosted(subject, options, options.engine)
        return
    reasons = [f"  {path}:{error.line or 1}: {error.message}" for error in unsupported(subject.run)]
    lacking = missing((*TRAIN, *needed_modules(subject.run)))
    if not reasons and not lacking:
        return
    counted = [f"{len(reasons)} setting(s) that it cannot honour"] if reasons else []
    counted += [f"{len(lacking)} package(s) missing"] if lacking else []
    lines = [f"  memory: {_foretold(path, options, predict)}", *reasons]
    if lacking:
        lines.append(f"  {', '.join(lacking)}: {install_lines(lacking)}")
    if reasons:
        lines.append("  remove these settings, or install Axolotl and let it train (--engine axolotl)")
    raise VramwiseError(f"the embedded engine cannot train {path}: {', '.join(counted)}", *lines)


def _refuse_hosted(subject: Subject, options: TrainOptions, engine: str) -> None:
    title = subject.trainer.title
    if options.random_weights:
        raise VramwiseError(
            f"--random-weights is not possible with --engine {engine}: {title} loads the model by itself"
        )
    refuse_sources(subject.run.config)
    if engine == "trl":
        kind_with_a_command(subject.run)
    trainer_command(engine)


def _foretold(path: str, options: TrainOptions, predict: Predict) -> str:
    """What the run would take if the file's own trainer ran it: known before anything else is asked for."""
    subject = open_subject(path, options.target)
    prediction = predict(subject)
    if prediction is None:
        return f"not predicted: {subject.model_missing or 'no GPU here'}"
    fits = {True: "fits", False: "does not fit", None: "no card named"}[prediction.fits]
    return f"{predicted_decision(prediction).value} ({fits})"
