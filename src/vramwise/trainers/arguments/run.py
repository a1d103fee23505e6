"""Fields → RunSpec."""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.allocator.variables import settings_in_force
from vramwise.trainers.fields import Fields
from vramwise.types import RunSpec, Target


def resolved(
    fields: Fields, target: Target, *, trainer: str, title: str, added: Mapping[str, str], whose: str
) -> RunSpec:
    """The run. `added`: allocator variables that the trainer sets by itself, and `whose` word that is."""
    settings, origin = settings_in_force(target, added, whose)
    fields.put("allocator", settings, origin)
    return RunSpec(
        trainer=trainer,
        trainer_title=title,
        config=fields.config,
        target=target,
        origins=fields.origins,
        keys=fields.keys,
        duplicate_keys=fields.config.document.duplicates,
        added_variables=dict(added),
        **fields.values,
    )
