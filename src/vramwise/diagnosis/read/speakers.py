"""Which trainer wrote a log, and whose keys remedies use if there is no config.

A log names its trainer in traceback paths, loggers, commands and printed settings: by modules, folders and commands,
not by versions or mere mentions. Trainers built on others are checked first: their runs show the packages below them as
well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vramwise.diagnosis.evidence import Frame, LogFacts
from vramwise.trainers.base import Trainer
from vramwise.trainers.registry import DEFAULT, all_identities, trainer_named

# transformers is named in all runs; it is recognized by its training loop instead.
_BELOW_ALL = "transformers"
_NAMES = {
    name: trainer.package
    for trainer in all_identities()
    if trainer.package != _BELOW_ALL
    for name in (trainer.package, *trainer.other_names)
}
# A module, folder or command of the trainer; short names also occur inside words and as a hub account.
_NAMED = {
    name: re.compile(rf"(?<![\w\-.]){name}(?:[./\\]\w|-cli\b|\s(?:sft|dpo|kto|grpo|reward|rloo|train)\b)")
    for name in _NAMES
}
# Lines that transformers' training loop prints under any trainer: its announcement, and the figures of a logged step.
_ANNOUNCES, _LOGS = "***** Running training", ("'learning_rate': ", "'epoch': ")
# Libraries that take part in a run, by words of their modules, folders and lines.
_LIBRARIES = {
    "vllm": "vllm",
    "cumem_allocator": "vllm",
    "ZeRO": "deepspeed",
    "runtime/zero": "deepspeed",
    "sigkill_handler": "deepspeed",
    "FSDP": "fsdp",
    "fully_shard": "fsdp",
    "ray::": "ray",
    "RayActor": "ray",
    "ray-oom": "ray",
}
TRAINER_WORDS = tuple(name.encode() for name in (*_NAMES, _ANNOUNCES, _LOGS[0], *_LIBRARIES))
# Settings that only one trainer uses, with its package.
_OWN_KEYS: Mapping[str, str] = {one.own_setting: one.package for one in all_identities()}
# What any run of transformers' Trainer shows, with an unknown script around it.
_LOOP, _LIBRARY = "/transformers/trainer.py", "/transformers/"
_ANYBODYS_KEY = "per_device_train_batch_size"
_PLAIN = "hf-trainer"


def named_trainers(text: str) -> Iterator[str]:
    """Return the packages of the trainers that a line names."""
    low = text.lower()
    return (_NAMES[name] for name, pattern in _NAMED.items() if name in low and pattern.search(low))


def named_libraries(text: str) -> Iterator[str]:
    """Return the libraries that a line names: vllm, deepspeed, fsdp, ray."""
    return (library for word, library in _LIBRARIES.items() if word in text)


def shows_training_loop(text: str) -> bool:
    """Whether transformers' Trainer, or one built on it, printed this line."""
    return _ANNOUNCES in text or all(word in text for word in _LOGS)


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
