"""Changes in Axolotl's words: a field of RunSpec with its new value → edits of the file, in the spelling it uses."""

from __future__ import annotations

from vramwise.allocator.variables import export_line
from vramwise.trainers.axolotl.spellers import batches, kernels, method, savers, sharding
from vramwise.trainers.axolotl.spellers.base import Speller
from vramwise.trainers.base import Spelling
from vramwise.types import Change, Edit, RunSpec

_SPELLERS: dict[str, Speller] = {
    **batches.SPELLERS,
    **kernels.SPELLERS,
    **method.SPELLERS,
    **savers.SPELLERS,
    **sharding.SPELLERS,
}


def spell(run: RunSpec, change: Change) -> Spelling | None:
    """All fields of a change, or None where one of them has no word here."""
    edits: list[Edit] = []
    commands: list[str] = []
    for field, value in change.fields.items():
        if field == "allocator":
            commands.append(export_line(run.target.torch))
            continue
        speller = _SPELLERS.get(field)
        spelt = speller(run, value) if speller else None
        if spelt is None:
            return None
        edits += spelt
        if field == "sharding" and str(value).startswith("zero") and not run.config.get("deepspeed"):
            commands.append(sharding.FETCH)
    command = " && ".join(commands)
    return Spelling(edits=_last_of_each_key(edits), command=command) if edits or command else None


def _last_of_each_key(edits: list[Edit]) -> tuple[Edit, ...]:
    """Where two fields set one key, the later one decides."""
    decided = {edit.key: edit for edit in edits}
    return tuple(decided.values())
