"""Other trainers' files run by the embedded engine: their keys and rules, with transformers' plain Trainer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from vramwise.rules.base import Rule
from vramwise.trainers.base import SideFiles, Spelling, Trainer
from vramwise.trainers.transformers.trainer import as_plain_trainer, lacks
from vramwise.types import Change, Document, Origin, RunSpec, Target


class EmbeddedOn:
    """A trainer's files under the embedded engine; everything not defined here is the trainer's own."""

    def __init__(self, owner: Trainer) -> None:
        self._owner = owner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._owner, name)

    def resolve(self, document: Document, target: Target, side_files: SideFiles) -> RunSpec:
        """Return the run as the embedded engine does it."""
        return as_embedded(self._owner.resolve(document, target, side_files))

    def spell(self, run: RunSpec, change: Change) -> Spelling | None:
        """Return the change in the file's own keys, or None if the engine does not support it."""
        return None if lacks(change) or change.fields.get("sample_packing") else self._owner.spell(run, change)

    def rules(self) -> Sequence[Rule]:
        """Return the trainer's rules without those that do not apply under the engine."""
        return [rule for rule in self._owner.rules() if not rule.moot_when_embedded]


def embedded_on(owner: Trainer) -> Trainer:
    """Return the trainer for the owner's files under the embedded engine."""
    return cast(Trainer, EmbeddedOn(owner))


def as_embedded(run: RunSpec) -> RunSpec:
    """Return the same settings under transformers' plain Trainer, where it differs from the file's trainer.

    Trained weights keep the dtype that the trainer gives them, and evaluations their schedule.
    """
    plain = as_plain_trainer(run)
    kept = ("quantised_base_prepared", "evaluates", "eval_batch_size", "eval_sequence_len", "eval_scheduled")
    own = {name: run.value(name) for name in kept}
    plain = plain.changed(trainer=run.trainer, trainer_title=run.trainer_title, **own)
    origins = {**plain.origins, **{name: run.origins[name] for name in kept if name in run.origins}}
    if not run.kernels.loss_kernel.startswith("liger"):
        plain = plain.changed(loss_kernel="stock")
        origins["loss_kernel"] = Origin(kind="derived", why="transformers' own loss: full logits in fp32")
    return replace(plain, origins=origins)
