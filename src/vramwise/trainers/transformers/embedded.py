"""Other trainers' files run by the embedded engine: their keys and rules, with transformers' plain Trainer."""

from __future__ import annotations

from dataclasses import replace

from vramwise.trainers.base import Spelling, Trainer
from vramwise.trainers.transformers.trainer import as_plain_trainer, lacks
from vramwise.types import Change, Origin, RunSpec


def embedded_on(owner: Trainer) -> Trainer:
    """Return the trainer for the owner's files under the embedded engine."""

    def spell(run: RunSpec, change: Change) -> Spelling | None:
        return None if lacks(change) or change.fields.get("sample_packing") else owner.spell(run, change)

    return replace(
        owner,
        resolve=lambda document, target, files: as_embedded(owner.resolve(document, target, files)),
        spell=spell,
        rules=lambda: [rule for rule in owner.rules() if not rule.moot_when_embedded],
    )


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
