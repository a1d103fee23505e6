"""Changes in Axolotl's words: a setting with its new value → edits of the file, in the spelling it uses.

A file a topic. Each `SPELLERS` maps a setting to what spells it: edits, none where the file says so already, or None
where another key of the file stands against the value.
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
    """All settings of a change, or None where one of them has no word here."""
    spelt = spell_with(_SPELLERS, run, change)
    if spelt is None:
        return None
    fetched = str(change.fields.get("sharding", "")).startswith("zero") and not run.config.get("deepspeed")
    commands = (spelt.command, sharding.FETCH if fetched else "")
    # where two settings decide one key, the later one wins
    edits = {edit.key: edit for edit in spelt.edits}
    return Spelling(edits=tuple(edits.values()), command=" && ".join(filter(None, commands)))
