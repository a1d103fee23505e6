"""Try changes on a Subject: spelt by its trainer, written into the config in memory, resolved and predicted anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from vramwise.documents.edit import apply_edits
from vramwise.errors import VramwiseError
from vramwise.subject import Subject
from vramwise.types import Change, Edit, RunSpec
from vramwise.variants.attempt import Attempt

Adjust = Callable[[RunSpec], RunSpec]


def _as_it_is(run: RunSpec) -> RunSpec:
    return run


def attempt(
    subject: Subject,
    *changes: Change,
    adjust: Adjust = _as_it_is,
    limit_bytes: int | None = None,
    predicts: bool = True,
) -> Attempt:
    """The subject with the changes, one after the other. `adjust`: what the caller decides beyond the config."""
    edits: list[Edit] = []
    commands: list[str] = []
    fields: dict[str, object] = {}
    changed = subject
    try:
        for change in changes:
            spelling = changed.trainer.spell(changed.run, change)
            if spelling is None:
                return Attempt(changes=changes, refused=f"{subject.trainer.title} has no key for it: {change.title}")
            if spelling.command:
                commands.append(spelling.command)
                fields |= change.fields
            if spelling.edits:
                edits += spelling.edits
                changed = changed.with_document(apply_edits(changed.document, spelling.edits))
        run = adjust(replace(changed.run, **fields) if fields else changed.run)  # type: ignore[arg-type]
        prediction = changed.with_run(run).forecast(limit_bytes=limit_bytes) if predicts else None
    except VramwiseError as error:
        return Attempt(changes=changes, edits=tuple(edits), commands=tuple(commands), refused=str(error))
    return Attempt(
        changes=changes,
        edits=tuple(edits),
        commands=tuple(commands),
        document=changed.document,
        run=run,
        prediction=prediction,
    )
