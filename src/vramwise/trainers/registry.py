"""The one list of trainers. A new trainer is one folder beside this file and one line here."""

from __future__ import annotations

from functools import cache

from vramwise.errors import VramwiseError
from vramwise.trainers.axolotl.trainer import Axolotl
from vramwise.trainers.base import Trainer
from vramwise.trainers.huggingface.trainer import HfTrainer
from vramwise.trainers.llamafactory.trainer import LlamaFactory
from vramwise.trainers.transformers.embedded import embedded_on
from vramwise.trainers.transformers.trainer import PlainTransformers
from vramwise.trainers.trl.trainer import Trl

# In the order in which they are asked whether a file is theirs.
TRAINERS: tuple[Trainer, ...] = (Axolotl(), LlamaFactory(), PlainTransformers(), Trl(), HfTrainer())


@cache
def trainer_named(name: str) -> Trainer:
    """The trainer of that name; one whose files do not say what they are for may be given the kind: `trl:dpo`."""
    first, _, kind = name.partition(":")
    for trainer in TRAINERS:
        if trainer.name == first:
            return trainer.of_kind(kind) if kind and isinstance(trainer, Trl) else _plain(trainer, kind)
    known = ", ".join(trainer.name for trainer in TRAINERS)
    raise VramwiseError(f"there is no trainer '{name}': choose one of {known}")


def running(owner: Trainer, engine: str) -> Trainer:
    """A trainer that runs another one's files in its place: the embedded engine reads them by their own keys."""
    found = trainer_named(engine)
    foreign = isinstance(found, PlainTransformers) and not isinstance(owner, Axolotl)
    return embedded_on(owner) if foreign else found


def _plain(trainer: Trainer, kind: str) -> Trainer:
    if kind:
        raise VramwiseError(f"trainer {trainer.name} has no kinds: leave out ':{kind}'")
    return trainer
