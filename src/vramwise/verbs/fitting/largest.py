"""`fit --max KEY`: the largest value of one setting with which a run fits, all else as the file has it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from vramwise.documents.edit import apply_edits
from vramwise.errors import VramwiseError
from vramwise.rules.base import set_key
from vramwise.subject import Subject
from vramwise.types import Change, join_key
from vramwise.variants.effort import ANSWER, NO_LIMIT, OutOfEffort
from vramwise.variants.search.beyond import UNTRIED
from vramwise.variants.search.book import REFUSED, UNWRITTEN
from vramwise.variants.search.fitness import TOO_LARGE, weighed
from vramwise.variants.search.ladders import LADDERS, is_present, ladder
from vramwise.variants.search.result import Candidate, Fit
from vramwise.verbs.drafts import Draft
from vramwise.verbs.fitting.workshop import SubjectWorkshop

Progress = Callable[[int, int], None]


def largest_of(
    subject: Subject,
    asked: str,
    *,
    margin_bytes: int | None = None,
    limit_bytes: int | None = None,
    progress: Progress | None = None,
) -> Fit:
    """The largest that fits, found by halving: what fits with a value fits with every smaller one."""
    assert subject.model is not None
    steps = ladder(subject.run, subject.model, _field(subject, asked))
    if not steps:
        raise VramwiseError(f"--max {asked}: this config has none: nothing can be made larger")
    climb = _Climb(subject=subject, margin_bytes=margin_bytes, limit_bytes=limit_bytes, progress=progress)
    low, high = -1, len(steps)
    try:
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if climb.tried(steps[middle]).fits else (low, middle)
    except OutOfEffort:
        climb.until = NO_LIMIT
    original = climb.tried(None)
    return Fit(
        original=original,
        best=climb.tried(steps[low]) if low >= 0 else None,
        closest=None if low >= 0 else climb.tried(steps[0], simulate=True),
        fallen={why: count for why, count in ((TOO_LARGE, len(steps) - high), (UNTRIED, high - low - 1)) if count},
        ended_early=high - low > 1,
        considered=len(steps),
        simulated=climb.simulated,
    )


def _field(subject: Subject, asked: str) -> str:
    """The field that a key of the trainer stands for."""
    names = {"model": "base_model"} | {key: name for name, key in subject.run.keys.items() if name in LADDERS}
    found = names.get(asked, asked)
    if found not in LADDERS:
        keys = [subject.run.keys.get(name, name) for name in LADDERS if name != "base_model"]
        raise VramwiseError(f"--max {asked}: it can be one of {', '.join([*keys, 'model'])}")
    return found


@dataclass(slots=True, kw_only=True)
class _Climb:
    """One value after the other, each written, resolved and, where it may fit, simulated."""

    subject: Subject
    margin_bytes: int | None
    limit_bytes: int | None
    progress: Progress | None
    simulated: int = 0
    until: int = field(default_factory=lambda: ANSWER)
    _tried: dict[str, Candidate] = field(default_factory=dict)

    def tried(self, change: Change | None, *, simulate: bool = False) -> Candidate:
        """The run with a value; `simulate`: even where it cannot fit."""
        present = change is None or is_present(self.subject.run, change)
        name = "" if change is None or present else change.title
        known = self._tried.get(name)
        if known is None or (simulate and known.prediction is None and known.fell == TOO_LARGE):
            draft = Draft(subject=self.subject)
            if change is not None and not present:
                draft = _with_model(draft, change) if "base_model" in change.fields else draft.with_change(change)
            self._tried[name] = self._weighed(draft, simulate=simulate or present)
        return self._tried[name]

    def _weighed(self, draft: Draft, *, simulate: bool) -> Candidate:
        made = draft.made()
        if made.run is None or draft.subject.model is None:
            return Candidate(attempt=made, speed=None, fell=UNWRITTEN)
        workshop = SubjectWorkshop(subject=draft.subject, limit_bytes=self.limit_bytes, until=self.until)
        speed = workshop.speed(made.run)
        if not simulate and workshop.least_bytes(made.run) > workshop.room_bytes(made.run):
            return Candidate(attempt=made, speed=speed, fell=TOO_LARGE)
        if made.changes and SubjectWorkshop(subject=self.subject).refusal(made):
            return Candidate(attempt=made, speed=speed, fell=REFUSED)
        self.simulated += 1
        if self.progress is not None:
            self.progress(self.simulated, max(self.simulated + 1, 8))
        return weighed(draft.predicted(made, self.limit_bytes), speed, self.margin_bytes)


def _with_model(draft: Draft, change: Change) -> Draft:
    """Another base model, under the key that names it: no trainer has another word for it."""
    run = draft.subject.run
    key = run.keys.get("base_model", "base_model")
    edits = (set_key(join_key(run.config.path(key)), change.fields["base_model"]),)
    try:
        subject = draft.subject.with_document(apply_edits(draft.subject.document, edits))
    except VramwiseError as error:
        return replace(draft, changes=(change,), refused=str(error))
    return replace(draft, subject=subject, changes=(change,), edits=edits)
