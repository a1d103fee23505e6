"""Fields → RunSpec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from vramwise.allocator.variables import settings_in_force
from vramwise.trainers.fields import Fields
from vramwise.types import Origin, RunSpec, Target


def resolved(
    fields: Fields,
    target: Target,
    *,
    trainer: str,
    title: str,
    added: Mapping[str, str],
    whose: str,
    block: str | None = None,
) -> RunSpec:
    """The run. `added`: allocator variables that the trainer sets by itself, and `whose` word that is.

    `block`: the key of the file under which they are written; then they win over the user's own environment.
    """
    if block is not None:
        own = {name: value for name, value in target.alloc_env.items() if name not in added}
        target = replace(target, alloc_env=own)
    settings, origin = settings_in_force(target, added, whose)
    if block is not None and origin.kind == "derived":
        name = next((name for name, value in added.items() if value == settings), block)
        key = f"{block}.{name}"
        origin = Origin(kind="file", why=f"set in the file's {block}", key=key, place=fields.config.place(key))
    fields.put("allocator", settings, origin)
    return fields.run(target, trainer=trainer, title=title, added=added)
