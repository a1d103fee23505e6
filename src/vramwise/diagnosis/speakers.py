"""Whose words remedies are in: the trainer that wrote the log, where no config says it.

A log names its trainer in the paths of its tracebacks, in its loggers and commands, and in the settings it prints.
Those built on others come first: a run of one shows the packages below it as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vramwise.diagnosis.evidence import Frame, LogFacts
from vramwise.diagnosis.read.trainer_texts import named_trainers
from vramwise.trainers.base import Trainer
from vramwise.trainers.registry import DEFAULT, all_trainers, trainer_named

# Settings that one trainer alone writes by this name, by its package.
_OWN_KEYS: Mapping[str, str] = {getattr(one, "own_setting", ""): one.package for one in all_trainers()}
# What any Trainer of transformers shows: the script around it is nobody's that we know.
_LOOP, _LIBRARY = "/transformers/trainer.py", "/transformers/"
_ANYBODYS_KEY = "per_device_train_batch_size"
_PLAIN = "hf-trainer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """A trainer, and whether it is known to have written the log."""

    trainer: Trainer
    known: bool


def speaker_of(log: LogFacts, frames: Sequence[Frame], insisted: str | None = None) -> Speaker:
    """The trainer that somebody insists on, else the log's, else a guess.

    Calls of transformers' loop say that its Trainer ran. Its models and printed figures do not: a trainer built on it
    has them too. They are still a reason to use the names of TrainingArguments.
    """
    if insisted is not None:
        return Speaker(trainer=trainer_named(insisted), known=True)
    files = [frame.file.replace("\\", "/").lower() for frame in frames]
    named = {name for file in files for name in named_trainers(file)} | log.trainers
    named |= {package for key, package in _OWN_KEYS.items() if key in log.keys_written}
    for trainer in all_trainers():
        if trainer.package in named:
            return Speaker(trainer=trainer, known=True)
    if any(_LOOP in file for file in files) or _ANYBODYS_KEY in log.keys_written:
        return Speaker(trainer=trainer_named(_PLAIN), known=True)
    plain = log.training_loop or any(_LIBRARY in file for file in files)
    return Speaker(trainer=trainer_named(_PLAIN if plain else DEFAULT), known=False)
