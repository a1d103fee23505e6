"""Changes as edits of Axolotl's files: a setting with its new value → edits, in the spelling that the file uses.

One file per topic. Each `SPELLERS` maps a setting to a function that returns edits: none if the file already has the
value, None if another key of the file conflicts with it.
"""

from __future__ import annotations

from vramwise.trainers.axolotl.spell import batch, kernels, method, savings, sharding
from vramwise.trainers.base import Spelling
from vramwise.trainers.spelling import Speller, spell_with
from vramwise.types import Change, RunSpec

_SPELLERS: dict[str, Speller] = {
    **batch.SPELLERS,
    **kernels.SPELLERS,
    **method.SPELLERS,
    **savings.SPELLERS,
    **sharding.SPELLERS,
}


def spell(run: RunSpec, change: Change) -> Spelling | None:
    """Return the edits for all settings of a change, or None if one of them has no key."""
    spelt = spell_with(_SPELLERS, run, change)
    if spelt is None:
        return None
    fetched = str(change.fields.get("sharding", "")).startswith("zero") and not run.config.get("deepspeed")
    commands = (spelt.command, sharding.FETCH if fetched else "")
    # if two settings set the same key, the later one wins
    edits = {edit.key: edit for edit in spelt.edits}
    return Spelling(edits=tuple(edits.values()), command=" && ".join(filter(None, commands)))
