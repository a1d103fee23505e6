"""Runs as the objects of a running program have them, where the script that describes these cannot say it."""

from __future__ import annotations

from dataclasses import replace

from vramwise.opening.options import Live
from vramwise.trainers.base import SideFiles, Trainer
from vramwise.types import PLACES, Document, Origin, RunSpec, Target


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
