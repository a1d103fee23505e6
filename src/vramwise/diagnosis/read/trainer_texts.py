"""Which trainers a line of a log names: by modules, folders and commands, not by versions or mere mentions."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vramwise.trainers.registry import all_identities

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
TRAINER_WORDS = tuple(name.encode() for name in (*_NAMES, _ANNOUNCES, _LOGS[0]))


def named_trainers(text: str) -> Iterator[str]:
    """Return the packages of the trainers that a line names."""
    low = text.lower()
    return (_NAMES[name] for name, pattern in _NAMED.items() if name in low and pattern.search(low))


def shows_training_loop(text: str) -> bool:
    """Whether transformers' Trainer, or one built on it, printed this line."""
    return _ANNOUNCES in text or all(word in text for word in _LOGS)
