"""`fit --max KEY`: the largest value of one setting with which a run fits, with what `fit` may change in addition.

A ladder has the values of such a setting in ascending order, each as a change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from vramwise.documents.edit import apply_edits
from vramwise.errors import VramwiseError
from vramwise.models.known import catalogue_ids, from_catalogue
from vramwise.models.parameters import parameter_count
from vramwise.opening.subject import Subject
from vramwise.rules.base import set_key
from vramwise.types import Change, ModelSpec, RunSpec, join_key
from vramwise.variants.attempt import Attempt
from vramwise.variants.axes import Axis
from vramwise.variants.changes.base import kind
from vramwise.variants.effort import ANSWER, NO_LIMIT, OutOfEffort
from vramwise.variants.search.beyond import closest, leanest
from vramwise.variants.search.book import REFUSED, UNWRITTEN
from vramwise.variants.search.result import TOO_LARGE, UNTRIED, Fit, weighed
from vramwise.verbs.drafts import Draft, SubjectWorkshop, search_of

# No card fits more rows at once.
_MOST_ROWS = 4096
_ROWS_STEP = 64
_HIGHEST_RANK = 1024
# The size in a model's name: 8B, 0.5B, 1.7b; and the version before it.
_NUMBERS = re.compile(r"\d+(\.\d+)*[bBmM]?")

BATCH, LENGTH, RANK, MODEL = map(kind, ("largest-micro-batch", "longest-rows", "highest-rank", "largest-model"))
Ladder = Callable[[RunSpec, ModelSpec], Iterator[Change]]


def _batches(run: RunSpec, _: ModelSpec) -> Iterator[Change]:
    """Yield micro-batches; the effective batch stays if it is divisible, else the accumulation stays."""
    product = run.batch.micro_batch_size * run.batch.gradient_accumulation_steps
    for micro in range(1, _MOST_ROWS + 1):
        fields: dict[str, Any] = {"micro_batch_size": micro}
        kept = product % micro == 0
        if kept:
            fields["gradient_accumulation_steps"] = product // micro
        each = fields.get("gradient_accumulation_steps", run.batch.gradient_accumulation_steps)
        effective = micro * each * run.batch.data_parallel
        batch = (
            "the same effective batch" if kept else f"effective batch {run.batch.effective_batch_size} → {effective}"
        )
        yield BATCH.to(f"Micro-batch {run.batch.micro_batch_size} → {micro} × accumulation {each}: {batch}", **fields)


def _lengths(run: RunSpec, model: ModelSpec) -> Iterator[Change]:
    most = max(model.max_position_embeddings, run.shapes.sequence_len)
    for length in sorted({*range(_ROWS_STEP, most + 1, _ROWS_STEP), run.shapes.sequence_len}):
        yield LENGTH.to(f"Rows of {run.shapes.sequence_len} → {length} tokens", sequence_len=length)


def _ranks(run: RunSpec, _: ModelSpec) -> Iterator[Change]:
    if run.adapter.kind is None or run.adapter.lora_r is None:
        return
    for rank in sorted({*(2**power for power in range(_HIGHEST_RANK.bit_length())), run.adapter.lora_r}):
        fields: dict[str, Any] = {"lora_r": rank}
        if run.adapter.lora_alpha is not None:
            alpha = run.adapter.lora_alpha * rank / run.adapter.lora_r
            fields["lora_alpha"] = int(alpha) if alpha == int(alpha) else alpha
        yield RANK.to(f"Rank {run.adapter.lora_r} → {rank}", **fields)


def _models(run: RunSpec, model: ModelSpec) -> Iterator[Change]:
    """Yield catalogue models whose name differs only in its numbers, of the same architecture, by size."""
    name = run.base_model or ""
    sizes: dict[int, str] = {parameter_count(model): name}
    for other in catalogue_ids():
        if _without_numbers(other) == _without_numbers(name):
            found = from_catalogue(other)
            if found is not None and found.model_type == model.model_type and not found.checkpoint_quantization:
                sizes.setdefault(parameter_count(found), other)
    for _, other in sorted(sizes.items()):
        yield MODEL.to(f"{name} → {other}", base_model=other)


def _without_numbers(name: str) -> str:
    return _NUMBERS.sub("", name).lower()


# RunSpec's field → its values in ascending order.
LADDERS: Mapping[str, Ladder] = {
    "micro_batch_size": _batches,
    "sequence_len": _lengths,
    "lora_r": _ranks,
    "base_model": _models,
}


def ladder(run: RunSpec, model: ModelSpec, field: str) -> Sequence[Change]:
    """Return every value of a setting, the smallest first, including the run's own."""
    return tuple(LADDERS[field](run, model))


def is_present(run: RunSpec, change: Change) -> bool:
    """Return whether the run already has the values of a change."""
    return all(run.value(name) == value for name, value in change.fields.items())


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
