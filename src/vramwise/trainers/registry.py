"""The list of trainers. A new trainer is one folder beside this file and one line here."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from vramwise.errors import VramwiseError
from vramwise.trainers.base import Trainer
from vramwise.trainers.signs import Identity

# Name → folder, in the order in which they are asked whether a file is theirs. `recognise.py` of a folder is imported
# when it is asked, which most files are recognised by the first; `trainer.py` when the file is its own.
_FOLDERS = {
    "axolotl": "axolotl",
    "llamafactory": "llamafactory",
    "transformers": "transformers",
    "unsloth": "unsloth",
    "trl": "trl",
    "hf-trainer": "huggingface",
}
TRAINER_NAMES = tuple(_FOLDERS)
# The trainer that is assumed if nothing decides, and the engine that runs other trainers' files.
DEFAULT = TRAINER_NAMES[0]
EMBEDDED = "transformers"
# The trainers whose files that engine trains.
EMBEDDED_TRAINS = (DEFAULT, EMBEDDED, "hf-trainer")


def all_identities() -> Iterator[Identity]:
    """Return who each trainer is, in the order in which they are asked."""
    return map(identity_named, TRAINER_NAMES)


def all_trainers() -> Iterator[Trainer]:
    """Return every trainer, in the same order; this imports what each of them does."""
    return map(trainer_named, TRAINER_NAMES)


def identity_named(name: str) -> Identity:
    """Return who the trainer with this name is."""
    found: Identity = import_module(f"vramwise.trainers.{_FOLDERS[name]}.recognise").IDENTITY
    return found


def trainer_named(name: str) -> Trainer:
    """Return the trainer with this name, optionally with a kind: `trl:dpo`.

    Raises VramwiseError for an unknown name, or for a kind if the trainer has none.
    """
    first, _, kind = name.partition(":")
    if first not in _FOLDERS:
        raise VramwiseError(f"unknown trainer '{name}': choose one of {', '.join(TRAINER_NAMES)}")
    trainer: Trainer = import_module(f"vramwise.trainers.{_FOLDERS[first]}.trainer").TRAINER
    if not kind:
        return trainer
    if trainer.of_kind is None:
        raise VramwiseError(f"trainer {trainer.name} has no kinds: remove ':{kind}'")
    return trainer.of_kind(kind)


def running(owner: Trainer, engine: str) -> Trainer:
    """Return a trainer that runs another one's files; the embedded engine reads them by their own keys.

    Raises VramwiseError if the embedded engine does not train such files.
    """
    found = trainer_named(engine)
    if found.name != EMBEDDED or owner.name in (DEFAULT, EMBEDDED):
        return found
    if owner.name not in EMBEDDED_TRAINS:
        raise VramwiseError(f"the embedded engine does not train {owner.title}'s files: leave out --engine")
    from vramwise.trainers.transformers.embedded import embedded_on  # only `train` and --engine need it

    return embedded_on(owner)
