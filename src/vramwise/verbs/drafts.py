"""Tries changes on a Subject: its trainer writes them into the config in memory, and the result is predicted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vramwise.documents.edit import apply_edits
from vramwise.documents.refusal import EditRefused
from vramwise.errors import VramwiseError
from vramwise.opening.subject import Subject
from vramwise.types import Change, Edit, RunSpec
from vramwise.variants.attempt import Attempt

# Maps the resolved run and the changes made to it to the run that the caller wants.
Adjust = Callable[[RunSpec, Sequence[Change]], RunSpec]


def as_it_is(run: RunSpec, _changes: Sequence[Change]) -> RunSpec:
    """Return the run unchanged."""
    return run


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A Subject with changes written into it one after the other. `refused`: why the last one could not be written."""

    subject: Subject
    changes: tuple[Change, ...] = ()
    edits: tuple[Edit, ...] = ()
    commands: tuple[str, ...] = ()
    by_hand: tuple[str, ...] = ()
    # Settings that a command or the user sets, which are not in the text.
    fields: Mapping[str, object] = field(default_factory=dict)
    refused: str = ""

    def with_change(self, change: Change) -> Draft:
        """Return the draft with one more change, written into the current text."""
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
        """Return the draft with the edits applied.

        Edits that a script leaves to the user are listed in `by_hand`; their settings count as changed.
        """
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
        """Return the resolved run of the current text, without a prediction.

        `adjust` applies the caller's own decisions.
        """
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
        """Return the attempt with its prediction.

        With `on_card=False`, it is left open what happens if it would reserve more than the card has.
        """
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
    """Apply the changes to the subject one after the other, and predict the result.

    `adjust` applies the caller's own decisions.
    """
    draft = Draft(subject=subject)
    for change in changes:
        draft = draft.with_change(change)
    made = draft.made(adjust)
    return draft.predicted(made, limit_bytes) if predicts else made
