"""The one list of trainers. A new trainer is one folder beside this file and one line here."""

from __future__ import annotations

from functools import cache

from vramwise.errors import VramwiseError
from vramwise.trainers.axolotl.trainer import Axolotl
from vramwise.trainers.base import Trainer
from vramwise.trainers.huggingface.trainer import HfTrainer
from vramwise.trainers.llamafactory.trainer import LlamaFactory
from vramwise.trainers.transformers.trainer import PlainTransformers
from vramwise.trainers.trl.trainer import Trl

# In the order in which they are asked whether a file is theirs.
TRAINERS: tuple[Trainer, ...] = (Axolotl(), LlamaFactory(), PlainTransformers(), Trl(), HfTrainer())


@cache
def trainer_named(name: str) -> Trainer:
    """The trainer of that name."""
    for trainer in TRAINERS:
        if trainer.name == name:
            return trainer
    known = ", ".join(trainer.name for trainer in TRAINERS)
    raise VramwiseError(f"there is no trainer '{name}': choose one of {known}")
