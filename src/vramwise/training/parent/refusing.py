"""Refuses what an engine cannot do before anything starts: all reasons at once, and what to install or remove.

Code that a config names runs only if the user permits it with `--trust-remote-code`, never by the file alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from vramwise.errors import ConfigError, VramwiseError
from vramwise.opening.subject import Subject, open_subject
from vramwise.trainers.base import Trainer
from vramwise.trainers.registry import DEFAULT, EMBEDDED
from vramwise.training.embedded import unsupported
from vramwise.training.embedded.axolotl import needed_modules
from vramwise.training.parent.engines import ASKED
from vramwise.training.parent.expected import predicted_decision
from vramwise.training.parent.extras import TRAIN, find_command, install_lines, missing, trainer_command
from vramwise.training.parent.hosted_engines import kind_with_a_command
from vramwise.training.plan import Decision
from vramwise.training.sources import dataset_blocks, refuse_sources
from vramwise.types import Config
from vramwise.variants.prediction import Prediction
from vramwise.variants.verdict import NAMES
from vramwise.verbs.fitting.shorter_rows import judged

if TYPE_CHECKING:
    from vramwise.training.parent.prepare import TrainOptions

Predict = Callable[[Subject], Prediction | None]
_KEY = "trust_remote_code"


def refuse_what_the_engine_cannot(
    path: str, subject: Subject, options: TrainOptions, engine: Decision, predict: Predict
) -> None:
    """Raise VramwiseError for unsupported settings, options of other engines, and missing packages."""
    if options.engine is not None and options.engine != EMBEDDED:
        _refuse_hosted(subject, options, options.engine)
        return
    reasons = [f"  {path}:{error.line or 1}: {error.message}" for error in unsupported(subject.run)]
    lacking = missing((*TRAIN, *needed_modules(subject.run)))
    if not reasons and not lacking:
        return
    counted = [f"{len(reasons)} setting(s) that it cannot honour"] if reasons else []
    counted += [f"{len(lacking)} package(s) missing"] if lacking else []
    lines = [f"  memory: {_predicted_memory(path, options, predict)}", *reasons]
    if lacking:
        lines.append(f"  {', '.join(lacking)}: {install_lines(lacking)}")
    if engine.why != ASKED:
        lines.append(f"  engine: {engine.why}")
    if reasons:
        lines.append(f"  remove these settings, or let the file's own trainer train it{_instead(subject.trainer)}")
    raise VramwiseError(f"the embedded engine cannot train {path}: {', '.join(counted)}", *lines)


def _instead(owner: Trainer) -> str:
    """Return how to use the file's own trainer instead; "" if it has no command."""
    if owner.name not in (DEFAULT, EMBEDDED):
        return ""
    how = f"--engine {DEFAULT}"
    return f": {how}" if find_command(DEFAULT) else f": {install_lines([DEFAULT])}, then {how}"


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


def _predicted_memory(path: str, options: TrainOptions, predict: Predict) -> str:
    """Describe the predicted memory of the run with the file's own trainer."""
    subject = open_subject(path, options.target)
    prediction = predict(subject)
    if prediction is None:
        return f"not predicted: {subject.model_missing or 'no GPU here'}"
    verdict = judged(subject, prediction, prediction.limit_bytes)
    return f"{predicted_decision(prediction, verdict).value} ({NAMES[verdict.memory].lower()})"


def trusted(config: Config, *, by_user: bool) -> bool:
    """Return whether the model's own code may run: requested by the config and permitted by the user.

    Raises ConfigError if it is only requested.
    """
    asking = next(_asking(config), None)
    if asking is not None and not by_user:
        place = config.place(asking)
        raise ConfigError(
            f"{asking}: true would run Python code that comes with the model or dataset, on this machine and as you; "
            "if you trust who wrote it, say so with --trust-remote-code, else remove the key",
            line=place.line if place else None,
            column=place.column if place else None,
            path=config.document.path,
        )
    return bool(config.get(_KEY, False))


def _asking(config: Config) -> Iterator[str]:
    if config.get(_KEY, False):
        yield _KEY
    for name, index, block in dataset_blocks(config):
        if block.get(_KEY):
            yield f"{name}.{index}.{_KEY}"
    for name in ("overrides_of_model_config", "model_init_kwargs"):
        written = config.get(name, {})
        if isinstance(written, Mapping) and written.get(_KEY):
            yield f"{name}.{_KEY}"
