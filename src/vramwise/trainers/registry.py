"""The list of trainers. A new trainer is one folder beside this file and one line here."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module

from vramwise.errors import VramwiseError
from vramwise.trainers.base import Trainer

# Name → class, in the order in which they are asked whether a file is theirs. A trainer is imported when it is asked:
# most files are recognised by the first.
_CLASSES = {
    "axolotl": "axolotl.trainer:Axolotl",
    "llamafactory": "llamafactory.trainer:LlamaFactory",
    "transformers": "transformers.trainer:PlainTransformers",
    "unsloth": "unsloth.trainer:Unsloth",
    "trl": "trl.trainer:Trl",
    "hf-trainer": "huggingface.trainer:HfTrainer",
}
TRAINER_NAMES = tuple(_CLASSES)
# The trainer that is assumed if nothing decides, and the engine that runs other trainers' files.
DEFAULT = TRAINER_NAMES[0]
EMBEDDED = "transformers"
# The trainers whose files that engine trains.
EMBEDDED_TRAINS = (DEFAULT, EMBEDDED, "hf-trainer")


def all_trainers() -> Iterator[Trainer]:
    """Return every trainer, in the order in which they are asked."""
    return map(_trainer, TRAINER_NAMES)


@cache
def _trainer(name: str) -> Trainer:
    module, _, kind = _CLASSES[name].partition(":")
    made: Trainer = getattr(import_module(f"vramwise.trainers.{module}"), kind)()
    return made


@cache
def trainer_named(name: str) -> Trainer:
    """Return the trainer with this name, optionally with a kind: `trl:dpo`.

    Raises VramwiseError for an unknown name, or for a kind if the trainer has none.
    """
    first, _, kind = name.partition(":")
    if first not in _CLASSES:
        raise VramwiseError(f"unknown trainer '{name}': choose one of {', '.join(TRAINER_NAMES)}")
    trainer = _trainer(first)
    if not kind:
        return trainer
    of_kind = getattr(trainer, "of_kind", None)
    if of_kind is None:
        raise VramwiseError(f"trainer {trainer.name} has no kinds: remove ':{kind}'")
    made: Trainer = of_kind(kind)
    return made


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
