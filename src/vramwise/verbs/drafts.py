"""Tries changes on a Subject: its trainer writes them into the config in memory, and the result is predicted.

`Draft` is a Subject with changes written one after the other, `attempt` tries some at once, and `SubjectWorkshop`
answers the questions of a search about many variants.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vramwise.documents.edit import apply_edits
from vramwise.documents.refusal import EditRefused
from vramwise.errors import VramwiseError
from vramwise.facts.context import outside_bytes
from vramwise.opening.sources import TEXT
from vramwise.opening.stops import errors_of
from vramwise.opening.subject import Subject
from vramwise.types import Change, Edit, Finding, RunSpec
from vramwise.variants.attempt import Attempt
from vramwise.variants.axes import Axis
from vramwise.variants.batches import eval_shapes, train_shapes
from vramwise.variants.effort import ASKED, CHARACTER, JUDGED, NO_LIMIT, SAMPLE, USUAL_FILE, WRITTEN, Effort
from vramwise.variants.lower_bounds import lower_bound_bytes
from vramwise.variants.search.book import Book, settings_of
from vramwise.variants.search.combinations import Space
from vramwise.variants.search.finding import Search
from vramwise.variants.speed import Speed

# Maps the resolved run and the changes made to it to the run that the caller wants.
Adjust = Callable[[RunSpec, Sequence[Change]], RunSpec]


def as_it_is(run: RunSpec, _changes: Sequence[Change]) -> RunSpec:
    """Return the run unchanged."""
    return run


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A Subject with the changes of an attempt written into it one after the other, before the result is resolved.

    `attempt.refused`: why the last one could not be written. `fields`: settings that a command or the user sets, which
    are not in the text.
    """

    subject: Subject
    attempt: Attempt = Attempt(changes=())  # noqa: RUF009 (frozen)
    # What the script's command line needs for them.
    words: tuple[str, ...] = ()
    fields: Mapping[str, object] = field(default_factory=dict)

    def with_change(self, change: Change) -> Draft:
        """Return the draft with one more change, written into the current text."""
        tried = replace(self.attempt, changes=(*self.attempt.changes, change))
        drafted = replace(self, attempt=tried)
        if tried.refused:
            return drafted
        subject = self.subject
        try:
            spelling = subject.trainer.spell(subject.run, change)
            if spelling is None:
                why = f"{subject.trainer.title} has no key for it: {change.title}"
                return replace(self, attempt=replace(tried, refused=why))
            if spelling.command:
                tried = replace(tried, commands=(*tried.commands, spelling.command))
                drafted = replace(self, attempt=tried, fields={**self.fields, **change.fields})
            if spelling.edits:
                drafted = drafted._written(change, spelling.edits)
        except VramwiseError as error:
            return replace(drafted, attempt=replace(tried, refused=str(error)))
        return drafted

    def _written(self, change: Change, edits: Sequence[Edit]) -> Draft:
        """Return the draft with the edits applied.

        Edits that a script leaves to the user are listed in `by_hand`; their settings count as changed.
        """
        document, tried = self.subject.document, self.attempt
        made, by_hand, words = list(tried.edits), list(tried.by_hand), list(self.words)
        for edit in edits if document.script is not None else ():
            try:
                document = apply_edits(document, (edit,))
                made.append(edit)
            except EditRefused as error:
                if not error.by_hand:
                    raise
                by_hand.append(str(error))
                words += filter(None, [error.words])
        if document.script is None:
            document, made = apply_edits(document, tuple(edits)), [*made, *edits]
        fields = {**self.fields, **(change.fields if len(by_hand) > len(tried.by_hand) else {})}
        tried = replace(tried, edits=tuple(made), by_hand=tuple(by_hand))
        subject = self.subject.with_document(document)
        return Draft(subject=subject, attempt=tried, words=tuple(words), fields=fields)

    def made(self, adjust: Adjust = as_it_is) -> Attempt:
        """Return the resolved run of the current text, without a prediction.

        `adjust` applies the caller's own decisions.
        """
        if self.attempt.refused:
            return self.attempt
        run = self.subject.run
        if self.fields:
            run = run.changed(**self.fields)
        if self.attempt.by_hand:  # the text still has the old sizes
            batch = run.batch
            each = batch.micro_batch_size * batch.gradient_accumulation_steps
            run = run.changed(effective_batch_size=each * batch.data_parallel)
        tried, path = self.attempt, self.subject.document.path
        if self.words:
            script = "SCRIPT" if path == TEXT else shlex.quote(path)
            tried = replace(tried, commands=(*tried.commands, f"python {script} {' '.join(self.words)}"))
        return replace(tried, document=self.subject.document, run=adjust(run, tried.changes))

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


@dataclass(slots=True, kw_only=True)
class SubjectWorkshop:
    """The workshop of one Subject. `keep`: keys of the trainer that must not change.

    `until`: how much effort may be spent; after that, every new question raises OutOfEffort.
    """

    subject: Subject
    limit_bytes: int | None = None
    keep: Sequence[str] = ()
    adjust: Adjust = as_it_is
    until: int = NO_LIMIT
    _drafts: dict[Hashable, Draft] = field(default_factory=dict)
    _speeds: dict[Hashable, Speed | None] = field(default_factory=dict)
    _bounds: dict[Hashable, int] = field(default_factory=dict)
    _errors: frozenset[tuple[str, str | None]] | None = None

    @property
    def effort(self) -> Effort:
        """The effort spent on the subject and its variants."""
        return self.subject.effort

    def made(self, changes: Sequence[Change]) -> Attempt:
        """Return the resolved config with the changes; `refused` is set if they cannot be written or break `keep`."""
        self._asked()
        made = self._draft(tuple(changes)).made(self.adjust)
        if made.run is None:
            return made
        altered = self._altered(made)
        if altered:
            return Attempt(changes=made.changes, refused=altered)
        return made

    def speed(self, run: RunSpec) -> Speed | None:
        """Return the predicted speed, with the row lengths of the data if they are known."""
        self._asked()
        key = settings_of(run)
        if key not in self._speeds:
            self.effort.stop_at(self.until)
            try:
                self._speeds[key] = self.subject.with_run(run).speed()
            except VramwiseError:
                self._speeds[key] = None
        return self._speeds[key]

    def least_bytes(self, run: RunSpec) -> int:
        """Return a lower bound of the memory that the run needs."""
        model, data, key = self.subject.model, self.subject.divided, settings_of(run)
        assert model is not None
        self._asked()
        if key not in self._bounds:
            self.effort.stop_at(self.until)
            self.effort.spend(SAMPLE * data.samples)
            try:
                shapes = train_shapes(run, data.train), eval_shapes(run, data.evaluation)
                self._bounds[key] = lower_bound_bytes(run, model, *shapes, effort=self.effort)
            except VramwiseError:
                self._bounds[key] = 0
        return self._bounds[key]

    def room_bytes(self, run: RunSpec) -> int:
        """Return the card's memory without what lies outside the allocator, or the limit if that is lower."""
        gpu = run.target.gpu
        room = None if gpu is None else gpu.memory_bytes - outside_bytes(run)
        return min(bound for bound in (room, self.limit_bytes) if bound is not None)

    def refusal(self, attempt: Attempt) -> str:
        """Return the first error that `check` finds with the changes and not without them; "" if there is none."""
        assert attempt.run is not None
        if self._errors is None:
            self._errors = frozenset((one.rule, one.key) for one in self._found(self.subject.run))
        self.effort.stop_at(self.until)
        self.effort.spend(JUDGED + self._size())
        found = self._found(attempt.run)
        return next((one.message for one in found if (one.rule, one.key) not in self._errors), "")

    def _found(self, run: RunSpec) -> list[Finding]:
        return errors_of(run, self.subject.trainer)

    def predicted(self, attempt: Attempt, *, on_card: bool) -> Attempt:
        """Return the attempt with its prediction. What settles or shows an answer (`on_card`) is never too much."""
        if not on_card:
            self.effort.stop_at(self.until)
        return self._draft(attempt.changes).predicted(attempt, self.limit_bytes, on_card=on_card)

    def _asked(self) -> None:
        """Count the effort of one question."""
        self.effort.spend(ASKED + self._size() // 100)

    def _size(self) -> int:
        """Return the extra effort for a file larger than usual."""
        return CHARACTER * max(0, len(self.subject.document.text) - USUAL_FILE)

    def _draft(self, changes: tuple[Change, ...]) -> Draft:
        """Return the draft with the changes written one after the other; common beginnings of variants are cached."""
        if not changes:
            return Draft(subject=self.subject)
        signature = tuple(_signature(change) for change in changes)
        if signature not in self._drafts:
            self.effort.stop_at(self.until)
            self.effort.spend(WRITTEN + self._size())
            self._drafts[signature] = self._draft(changes[:-1]).with_change(changes[-1])
        return self._drafts[signature]

    def _altered(self, made: Attempt) -> str:
        """Return a sentence naming the setting that must not change but would; "" if there is none."""
        assert made.run is not None
        now = self.subject.run
        if made.run.batch.effective_batch_size != now.batch.effective_batch_size:
            return (
                f"the effective batch would be {made.run.batch.effective_batch_size}, not "
                f"{now.batch.effective_batch_size}"
            )
        for key in self.keep:
            if any(_same_key(edit.key, key) for edit in made.edits) or any(
                made.run.value(name) != now.value(name) for name in _fields_of(now, key)
            ):
                return f"{key} is kept"
        return ""


def search_of(workshop: SubjectWorkshop, axes: tuple[Axis, ...], margin_bytes: int | None = None) -> Search:
    """Return a search over the variants that the axes offer to the workshop's subject."""
    space = Space(axes=axes, resolved=lambda changes: workshop.made(changes).run)
    return Search(book=Book(space=space, workshop=workshop, margin_bytes=margin_bytes))


def _same_key(key: str, pinned: str) -> bool:
    return key == pinned or key.startswith(f"{pinned}.") or pinned.startswith(f"{key}.")


def _fields_of(run: RunSpec, key: str) -> Iterable[str]:
    return (name for name, spelt in run.keys.items() if spelt == key)


def _signature(change: Change) -> Hashable:
    return change.id, tuple((name, repr(value)) for name, value in change.fields.items())
