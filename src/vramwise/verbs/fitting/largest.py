"""`fit --max KEY`: the largest value of one setting with which a run fits, with what `fit` may change in addition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from vramwise.documents.edit import apply_edits
from vramwise.errors import VramwiseError
from vramwise.opening.subject import Subject
from vramwise.rules.base import set_key
from vramwise.types import Change, join_key
from vramwise.variants.attempt import Attempt
from vramwise.variants.axes import Axis
from vramwise.variants.effort import ANSWER, NO_LIMIT, OutOfEffort
from vramwise.variants.search.beyond import closest, leanest
from vramwise.variants.search.book import REFUSED, UNWRITTEN
from vramwise.variants.search.ladders import LADDERS, is_present, ladder
from vramwise.variants.search.result import TOO_LARGE, UNTRIED, Fit, weighed
from vramwise.verbs.drafts import Draft, SubjectWorkshop, search_of

Progress = Callable[[int, int], None]
# Additional changes are searched at this multiple of the largest value that fits alone.
_FAR = 4
# Axes that change the same setting.
_SAME_SETTING: Mapping[str, tuple[str, ...]] = {"micro_batch_size": ("batches",), "sequence_len": ("length",)}


def largest_of(
    subject: Subject,
    asked: str,
    *,
    axes: tuple[Axis, ...],
    keep: Sequence[str] = (),
    margin_bytes: int | None = None,
    limit_bytes: int | None = None,
    progress: Progress | None = None,
) -> Fit:
    """Find the largest value that fits by bisection: if a value fits, every smaller one does.

    First with all other settings unchanged, then with what `fit` may change (`axes`), except `keep`.
    """
    steps = _steps(subject, asked)
    climb = _Climb(
        subject=subject,
        axes=tuple(axis for axis in axes if axis.name not in _SAME_SETTING.get(_field(subject, asked), ())),
        keep=keep,
        margin_bytes=margin_bytes,
        limit_bytes=limit_bytes,
        progress=progress,
    )
    alone, low, high = climb.climbed(steps)
    ended = high - low > 1
    climb.until = NO_LIMIT
    best = alone if low < 0 or (alone is not None and climb.tried(steps[low]) is alone) else climb.fastest(steps[low])
    return Fit(
        original=climb.tried(None),
        best=best,
        alternatives=() if alone is None or alone is best else (alone,),
        closest=None if best is not None else climb.closest(steps[0]),
        fallen={why: count for why, count in ((TOO_LARGE, len(steps) - high), (UNTRIED, high - low - 1)) if count},
        ended_early=ended,
        considered=len(steps),
        simulated=climb.simulated,
    )


def largest_model(subject: Subject, axes: tuple[Axis, ...]) -> str:
    """Return the largest model of the family that fits, with the changes of `axes`; "" if none does."""
    steps = _steps(subject, "model")
    climb = _Climb(subject=subject, axes=axes, keep=(), margin_bytes=None, limit_bytes=None, progress=None)
    low = climb.climbed(steps)[1]
    return str(steps[low].fields["base_model"]) if low >= 0 else ""


def _steps(subject: Subject, asked: str) -> Sequence[Change]:
    assert subject.model is not None
    steps = ladder(subject.run, subject.model, _field(subject, asked))
    if not steps:
        raise VramwiseError(f"--max {asked}: the config does not use it, so there is nothing to enlarge")
    return steps


def _field(subject: Subject, asked: str) -> str:
    """Return the setting for a key of the trainer; raises VramwiseError if it cannot be maximised."""
    names = {"model": "base_model"} | {key: name for name, key in subject.run.keys.items() if name in LADDERS}
    found = names.get(asked, asked)
    if found not in LADDERS:
        keys = [subject.run.keys.get(name, name) for name in LADDERS if name != "base_model"]
        raise VramwiseError(f"--max {asked}: choose one of {', '.join([*keys, 'model'])}")
    return found


@dataclass(slots=True, kw_only=True)
class _Climb:
    """Tries one value after the other: each is written, resolved and, if it may fit, simulated."""

    subject: Subject
    axes: tuple[Axis, ...]
    keep: Sequence[str]
    margin_bytes: int | None
    limit_bytes: int | None
    progress: Progress | None
    simulated: int = 0
    until: int = field(default_factory=lambda: ANSWER)
    # Changes that make larger values fit.
    _help: tuple[Change, ...] = ()
    _tried: dict[str, Attempt] = field(default_factory=dict)
    _helped: dict[str, Attempt] = field(default_factory=dict)

    def climbed(self, steps: Sequence[Change]) -> tuple[Attempt | None, int, int]:
        """Return the largest run that fits alone, and the numbers of the last step that fits and the next one.

        The numbers include steps that fit only with additional changes.
        """
        low, high = self.between(lambda step: self.tried(step).fits, steps, -1)
        alone = self.tried(steps[low]) if low >= 0 else None
        if high - low == 1 and high < len(steps):
            self.look_for_help(steps[min(len(steps) - 1, max(low, 0) * _FAR + 1)])
            low, high = self.between(lambda step: self.helped(step).fits, steps, low)
        return alone, low, high

    def between(self, fits: Callable[[Change], bool], steps: Sequence[Change], low: int) -> tuple[int, int]:
        """Return the last step that fits and the first that does not; they are further apart if the effort ended."""
        high = len(steps)
        with suppress(OutOfEffort):
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if fits(steps[middle]) else (low, middle)
        return low, high

    def tried(self, change: Change | None) -> Attempt:
        """Return the run with a value, all other settings unchanged."""
        draft = self._draft(change)
        changes = draft.attempt.changes
        name = changes[0].title if changes else ""
        if name not in self._tried:
            self._tried[name] = self._weighed(draft, simulate=not changes)
        return self._tried[name]

    def helped(self, change: Change) -> Attempt:
        """Return the run with a value; if it does not fit alone, with the additional changes."""
        if (alone := self.tried(change)).fits:
            return alone
        if change.title not in self._helped:
            self._helped[change.title] = self._with_help(self._draft(change))
        return self._helped[change.title]

    def fastest(self, change: Change) -> Attempt:
        """Return the fastest run with a value that fits."""
        draft, known = self._draft(change), self.helped(change)
        search = search_of(self._workshop(draft, ANSWER), self.axes, self.margin_bytes)
        best = search.best()
        self._count(search.book.simulated)
        return known if best is None else _joined(draft, search.book.judged(best))

    def look_for_help(self, change: Change) -> None:
        """Choose changes that minimise the memory of a run with a value that is too large alone, by lower bounds."""
        draft = self._draft(change)
        search = search_of(self._workshop(draft, self.until), self.axes, self.margin_bytes)
        with suppress(OutOfEffort):
            self._help = next((search.book.attempt(pick).changes for _, pick in leanest(search)), ())

    def _with_help(self, draft: Draft) -> Attempt:
        workshop = self._workshop(draft, self.until)
        made = workshop.made(self._help)
        if made.run is None or not self._help or workshop.refusal(made):
            return replace(made, fell=UNWRITTEN)
        speed = workshop.speed(made.run)
        if workshop.least_bytes(made.run) > workshop.room_bytes(made.run):
            return _joined(draft, replace(made, speed=speed, fell=TOO_LARGE))
        self._count(1)
        return _joined(draft, weighed(workshop.predicted(made, on_card=True), speed, self.margin_bytes))

    def closest(self, change: Change) -> Attempt:
        """Return the run with a value that needs least, if nothing fits."""
        draft = self._draft(change)
        search = search_of(self._workshop(draft, self.until), self.axes, self.margin_bytes)
        pick = closest(search)
        self._count(search.book.simulated)
        return self._weighed(draft, simulate=True) if pick is None else _joined(draft, search.book.judged(pick))

    def _draft(self, change: Change | None) -> Draft:
        draft = Draft(subject=self.subject)
        if change is None or is_present(self.subject.run, change):
            return draft
        return _with_model(draft, change) if "base_model" in change.fields else draft.with_change(change)

    def _weighed(self, draft: Draft, *, simulate: bool) -> Attempt:
        made = draft.made()
        if made.run is None or draft.subject.model is None:
            return replace(made, fell=UNWRITTEN)
        workshop = self._workshop(draft, self.until)
        speed = workshop.speed(made.run)
        if not simulate and workshop.least_bytes(made.run) > workshop.room_bytes(made.run):
            return replace(made, speed=speed, fell=TOO_LARGE)
        if made.changes and SubjectWorkshop(subject=self.subject).refusal(made):
            return replace(made, speed=speed, fell=REFUSED)
        self._count(1)
        return weighed(draft.predicted(made, self.limit_bytes), speed, self.margin_bytes)

    def _workshop(self, draft: Draft, until: int) -> SubjectWorkshop:
        return SubjectWorkshop(subject=draft.subject, limit_bytes=self.limit_bytes, keep=self.keep, until=until)

    def _count(self, simulations: int) -> None:
        self.simulated += simulations
        if self.progress is not None:
            self.progress(self.simulated, max(self.simulated + 1, 8))


def _joined(draft: Draft, found: Attempt) -> Attempt:
    """Return a variant of a draft, with the draft's changes before its own."""
    done = draft.attempt
    return replace(found, changes=(*done.changes, *found.changes), edits=(*done.edits, *found.edits))


def _with_model(draft: Draft, change: Change) -> Draft:
    """Return the draft with another base model, set under the key that names it."""
    run = draft.subject.run
    key = run.keys.get("base_model", "base_model")
    edits = (set_key(join_key(run.config.path(key)), change.fields["base_model"]),)
    try:
        subject = draft.subject.with_document(apply_edits(draft.subject.document, edits))
    except VramwiseError as error:
        return replace(draft, attempt=Attempt(changes=(change,), refused=str(error)))
    return Draft(subject=subject, attempt=Attempt(changes=(change,), edits=edits))
