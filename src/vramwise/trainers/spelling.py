"""Turns changes into edits of a file; shared by the `spell` of all trainers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from vramwise.allocator.variables import export_line
from vramwise.rules.base import insert_key, set_key
from vramwise.trainers.base import Spelling
from vramwise.types import Change, Edit, RunSpec, join_key

# Returns a field's new value as edits: empty if the file already has it, None if the trainer has no key for it.
Speller = Callable[[RunSpec, Any], tuple[Edit, ...] | None]
KWARGS = "gradient_checkpointing_kwargs"


def spell_with(spellers: Mapping[str, Speller], run: RunSpec, change: Change) -> Spelling | None:
    """Return the edits for all fields of a change; None if the trainer has no key for one of them.

    The allocator becomes a shell line, unless there is a speller for it.
    """
    edits: list[Edit] = []
    command = ""
    for field, value in change.fields.items():
        speller = spellers.get(field)
        if speller is None and field == "allocator":
            command = export_line(run.target.torch)
            continue
        spelt = speller(run, value) if speller else None
        if spelt is None:
            return None
        edits += spelt
    return Spelling(edits=tuple(edits), command=command) if edits or command else None


def placed(run: RunSpec, key: str, value: object, related: Iterable[str], otherwise: str) -> Edit:
    """Set the key as the file spells it, or insert it beside the first of `related` that is written."""
    if key in run.config:
        return set_key(join_key(run.config.path(key)), value)
    return insert_key(key, value, beside=next((name for name in related if name in run.config), otherwise))


def speller_by_key(put: Callable[[RunSpec, str, object], Edit], name: str) -> Speller:
    """Return the speller of a field that has its own key, which `put` writes."""

    def speller(run: RunSpec, value: Any) -> tuple[Edit, ...]:
        return (put(run, name, value),)

    return speller


def reentrant(run: RunSpec, value: bool, block: Edit, kwargs: str = KWARGS) -> Edit:
    """Set `use_reentrant` in the block of kwargs; `block` makes one where there is none."""
    key, written = f"{kwargs}.use_reentrant", run.config.get(kwargs)
    if key in run.config:
        return set_key(key, value)
    if isinstance(written, dict) and written and kwargs in run.config:
        return insert_key(key, value, beside=f"{kwargs}.{next(iter(written))}")
    return block


def tf32(run: RunSpec, value: Any) -> tuple[Edit, ...]:
    """Edit tf32 only if it is on: no trainer turns it on by default."""
    return (set_key("tf32", value),) if run.config.get("tf32") else ()
