"""Try changes on a Subject: spelt by its trainer, written into the config in memory, resolved and predicted anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vramwise.documents.edit import apply_edits
from vramwise.documents.refusal import EditRefused
from vramwise.errors import VramwiseError
from vramwise.subject import Subject
from vramwise.types import Change, Edit, RunSpec
from vramwise.variants.attempt import Attempt

# The run as the config has it and the changes that were made to it → the run as the caller decides it.
Adjust = Callable[[RunSpec, Sequence[Change]], RunSpec]


def as_it_is(run: RunSpec, _changes: Sequence[Change]) -> RunSpec:
    """Nothing is decided beyond the config."""
    return run


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A Subject with changes written into it, one after the other. `refused`: why the last one could not be."""

    subject: Subject
    changes: tuple[Change, ...] = ()
    edits: tuple[Edit, ...] = ()
    commands: tuple[str, ...] = ()
    by_hand: tuple[str, ...] = ()
    # What a command sets, or a person, which no text says.
    fields: Mapping[str, object] = field(default_factory=dict)
    refused: str = ""

    def with_change(self, change: Change) -> Draft:
        """One more change, spelt for the text as it is by now."""
        drafted = replace(self, changes=(*self.changes, change))
        if self.refused:
            return drafted
        subject = self.subject
        try:
            spelling = subject.trainer.spell(subject.run, change)
            if spelling is None:
                return replace(drafted, refused=f"{subject.trainer.title} has no key for it: {change.title}")
            if spelling.command:
                drafted = replace(
                    drafted, commands=(*self.commands, spelling.command), fields={**self.fields, **change.fields}
                )
            if spelling.edits:
                drafted = drafted._written(change, spelling.edits)
        except VramwiseError as error:
            return replace(drafted, refused=str(error))
        return drafted

    def _written(self, change: Change, edits: Sequence[Edit]) -> Draft:
        """With the edits made; those that a script leaves to a person are noted, and count all the same."""
        document, made, by_hand = self.subject.document, list(self.edits), list(self.by_hand)
        for edit in edits if document.script is not None else ():
            try:
                document = apply_edits(document, (edit,))
                made.append(edit)
            except EditRefused as error:
                if not error.by_hand:
                    raise
                by_hand.append(str(error))
        if document.script is None:
            document, made = apply_edits(document, tuple(edits)), [*made, *edits]
        fields = {**self.fields, **(change.fields if len(by_hand) > len(self.by_hand) else {})}
        subject = self.subject.with_document(document)
        return replace(self, subject=subject, edits=tuple(made), by_hand=tuple(by_hand), fields=fields)

    def made(self, adjust: Adjust = as_it_is) -> Attempt:
        """The run that the text means now, not predicted. `adjust`: what the caller decides beyond the config."""
        attempt = Attempt(
            changes=self.changes, edits=self.edits, commands=self.commands, by_hand=self.by_hand, refused=self.refused
        )
        if self.refused:
            return attempt
        run = self.subject.run
        if self.fields:
            run = run.changed(**self.fields)
        if self.by_hand:  # the text still has the old sizes
            batch = run.batch
            each = batch.micro_batch_size * batch.gradient_accumulation_steps
            run = run.changed(effective_batch_size=each * batch.data_parallel)
        run = adjust(run, self.changes)
        return replace(attempt, document=self.subject.document, run=run)

    def predicted(self, attempt: Attempt, limit_bytes: int | None = None, *, on_card: bool = True) -> Attempt:
        """What was made of this draft, with its prediction; without `on_card` open where it would reserve too much."""
        if attempt.run is None:
            return attempt
        try:
            prediction = self.subject.with_run(attempt.run).prediction(limit_bytes=limit_bytes, on_card=on_card)
        except VramwiseError as error:
            return replace(attempt, document=None, run=None, refused=str(error))
        return replace(attempt, prediction=prediction)


def attempt(
    subject: Subject,
    *changes: Change,
    adjust: Adjust = as_it_is,
    limit_bytes: int | None = None,
    predicts: bool = True,
) -> Attempt:
    """The subject with the changes, one after the other. `adjust`: what the caller decides beyond the config."""
    draft = Draft(subject=subject)
    for change in changes:
        draft = draft.with_change(change)
    made = draft.made(adjust)
    return draft.predicted(made, limit_bytes) if predicts else made
