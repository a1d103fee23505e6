"""Changes that may fix a failure, and which suit each cause: `remedies.json`, built for a case.

With a config, `variants.changes` decides whether a change applies and the trainer spells it; without one, the trainer
names the keys to set. `advice` decides when something else suits a cause.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from vramwise.bundled import bundled_json
from vramwise.diagnosis.evidence import Remedy
from vramwise.subject import Subject
from vramwise.trainers.base import Trainer
from vramwise.types import Change, Fix
from vramwise.variants import changes


@cache
def _stored() -> dict[str, Any]:
    found: dict[str, Any] = bundled_json("remedies.json", __file__)
    return found


def changes_for(cause: str) -> tuple[str, ...]:
    """Return the names of the changes that suit a cause, best first."""
    return tuple(_stored()["causes"].get(cause, {}).get("changes", ()))


def advice_for(cause: str) -> tuple[Remedy, ...]:
    """Return further remedies for a cause: a command, keys outside the config, or plain text."""
    rows = _stored()["causes"].get(cause, {}).get("advice", ())
    return tuple(Remedy(**{**row, "keys": tuple(row.get("keys", ()))}) for row in rows)


def is_of_memory(cause: str) -> bool:
    """Whether the cause is about memory, so that the prediction can judge its remedies."""
    return "of_memory" in _stored()["causes"].get(cause, {})


def build(name: str, subject: Subject | None, trainer: Trainer) -> Remedy | None:
    """Return a change as a remedy: edits for a config, or the trainer's keys; None if it does not apply."""
    row = _stored()["changes"][name]
    if subject is None:
        return Remedy(title=row["title"], keys=trainer.words.get(name, ()))
    wanted: Change | None = getattr(changes, row["change"])(subject.run)
    spelling = None if wanted is None else subject.trainer.spell(subject.run, wanted)
    if wanted is None or spelling is None or not spelling.edits:
        return None
    title = spelling.title or wanted.title
    return Remedy(title=title, fix=Fix(title=title, safe=wanted.safe, edits=spelling.edits, change=wanted))
