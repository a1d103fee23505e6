"""Whose keys remedies use: those of the trainer that wrote the log, if there is no config.

A log names its trainer in traceback paths, loggers, commands and printed settings. Trainers built on others are checked
first: their runs show the packages below them as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vramwise.diagnosis.evidence import Frame, LogFacts
from vramwise.diagnosis.read.trainer_texts import named_trainers
from vramwise.trainers.base import Trainer
from vramwise.trainers.registry import DEFAULT, all_identities, trainer_named

# Settings that only one trainer uses, with its package.
_OWN_KEYS: Mapping[str, str] = {one.own_setting: one.package for one in all_identities()}
# What any run of transformers' Trainer shows, with an unknown script around it.
_LOOP, _LIBRARY = "/transformers/trainer.py", "/transformers/"
_ANYBODYS_KEY = "per_device_train_batch_size"
_PLAIN = "hf-trainer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """A trainer, and whether it is known to have written the log."""

    trainer: Trainer
    known: bool


def speaker_of(log: LogFacts, frames: Sequence[Frame], insisted: str | None = None) -> Speaker:
    """Return the trainer the caller insists on, otherwise the log's, otherwise a guess.

    Calls of transformers' loop show that its Trainer ran. Its models and printed figures do not, as a trainer built on
    it has them too; they are still a reason to use the names of TrainingArguments.
    """
    if insisted is not None:
        return Speaker(trainer=trainer_named(insisted), known=True)
    files = [frame.file.replace("\\", "/").lower() for frame in frames]
    named = {name for file in files for name in named_trainers(file)} | log.trainers
    named |= {package for key, package in _OWN_KEYS.items() if key in log.keys_written}
    for one in all_identities():
        if one.package in named:
            return Speaker(trainer=trainer_named(one.name), known=True)
    if any(_LOOP in file for file in files) or _ANYBODYS_KEY in log.keys_written:
        return Speaker(trainer=trainer_named(_PLAIN), known=True)
    plain = log.training_loop or any(_LIBRARY in file for file in files)
    return Speaker(trainer=trainer_named(_PLAIN if plain else DEFAULT), known=False)
