"""The objects of a running program as a source: a script that says what they hold, and what no script can say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vramwise.opening.options import Text
from vramwise.trainers.base import SideFiles, Trainer
from vramwise.types import PLACES, Document, ModelSpec, Origin, RunSpec, Target
from vramwise.variants.lengths import NO_DATA, Data


class Live(Text):
    """A script with the values of live objects.

    `model`: its dimensions, as the object has them; None if they are unknown, and `model_missing` says why. `facts`:
    settings that no script says, each with the reason. `data`: the rows that its own loader draws. `notes`: what is
    assumed about the objects. `ends`: how long it trains is known.
    """

    model: ModelSpec | None = None
    model_missing: str = ""
    facts: Mapping[str, tuple[Any, str]] = {}
    data: Data = NO_DATA
    notes: tuple[str, ...] = ()
    ends: bool = True


def as_it_is(trainer: Trainer, original: Document, live: Live) -> Trainer:
    """Return the trainer with the facts of live objects in every run that it resolves.

    Where another text than the original gives a setting another value, the text counts: it is what a change wrote.
    """

    def resolve(document: Document, target: Target, files: SideFiles) -> RunSpec:
        run = trainer.resolve(document, target, files)
        before = run if document.values == original.values else trainer.resolve(original, target, files)
        facts = {
            name: fact
            for name, fact in live.facts.items()
            if name not in PLACES or run.value(name) == before.value(name)
        }
        origins = {name: Origin(kind="derived", why=why) for name, (_, why) in facts.items() if name in PLACES}
        changed = {name: value for name, (value, _) in facts.items()}
        return run.changed(**changed, origins={**run.origins, **origins})

    return replace(trainer, resolve=resolve)
