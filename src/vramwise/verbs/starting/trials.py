"""Trials of `new`: the starting config of a method, fitted to the card, and the choice of the fastest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from vramwise.documents.edit import apply_edits
from vramwise.opening.options import Options
from vramwise.opening.subject import Subject, open_subject
from vramwise.trainers.rulebook import rules_for
from vramwise.trainers.starting import Start
from vramwise.variants.attempt import Attempt
from vramwise.variants.axes import Axis, opened
from vramwise.variants.changes.kernels import expandable_segments
from vramwise.variants.changes.weights import has_experts
from vramwise.variants.duration import Duration
from vramwise.variants.lengths import NO_DATA, Data, Lengths
from vramwise.variants.lower_bounds import proof_bytes
from vramwise.variants.prediction import Prediction
from vramwise.variants.search.result import weighed
from vramwise.variants.verdict import TIGHT
from vramwise.verbs.check import Policy, check_subject
from vramwise.verbs.fit import repaired
from vramwise.verbs.fitting.fastest import answer_of
from vramwise.verbs.starting.plan import Plan

Progress = Callable[[int, int], None]
_FLASH = "flash_attention_2"
_SHARDING = ("fsdp", "zero")
_EIGHT_BIT, _NARROWER = "8bit-optimizer", "narrower-targets"
_HOUR, _ABOUT = 3600, 1.05
# If packed rows miss by more than this share of the card, padded rows do not fit either.
_FAR = 0.15
# Enough to show the effect of alternating short and long rows on the allocator; an evaluation keeps nothing between
# batches.
FEW, _EVALUATED = 32, 8
# Packed rows hold several samples each and have similar lengths.
_MORE_PACKED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A starting config and the result of fitting it: the fastest variant that fits, or the closest.

    `subject` is the start with the data used in the search, `data` all of it. `unbeaten`: the other kind of rows was
    searched too, and no variant that fits is as fast.
    """

    method: str
    packed: bool
    start: Start
    subject: Subject
    data: Data
    best: Attempt
    unbeaten: bool = False

    @property
    def fits(self) -> bool:
        """Whether it fits and starts."""
        return self.best.fits and not self.subject.stops

    @property
    def proof_bytes(self) -> int:
        """What the weights alone need, if that proves that the method does not fit; otherwise 0."""
        prediction = self.best.prediction
        return (
            0
            if prediction is None
            else proof_bytes(self.subject.run, self.subject.model, (), prediction.capacity_bytes or 0)
        )

    @property
    def searched(self) -> Subject:
        """The resulting config, with the data used in the search."""
        document = self.best.document
        return self.subject if document is None else self.subject.with_document(document)

    @property
    def fitted(self) -> Subject:
        """The resulting config, with all data."""
        return self.searched.changed(data=self.data)

    @property
    def duration(self) -> Duration | None:
        """The duration of the training, or None if it is unknown."""
        fitted = self.fitted
        speed = fitted.speed()
        return None if speed is None else fitted.duration(speed)


def trials(plan: Plan, options: Options, method: str, few: bool, progress: Progress | None) -> list[Trial]:
    """Return the method with packed and with padded rows, each fitted; those with more objections are left out.

    `few`: search with a few of the samples. Rows that cannot be faster than the first trial get no trial.
    """
    starts = [_start(plan, options, method, packed) for packed in ((True, False) if plan.packs else (False,))]
    least = min(_objections(subject) for _, subject in starts)
    found: list[Trial] = []
    for start, subject in starts:
        if _objections(subject) > least or (found and _settled(found[0], plan)):
            continue
        packed = bool(start.wishes.packing)
        subject = subject.changed(data=plan.data)
        if few:
            data = sampled(subject.divided, plan.ask.batch, packed=packed)
            subject = subject.changed(data=data)
        best = _fitted(subject, method, plan, found[0] if found else None, progress)
        if best is None:
            found[:1] = [replace(first, unbeaten=True) for first in found[:1]]
        else:
            made = Trial(
                method=method,
                packed=packed,
                start=start,
                subject=subject,
                data=plan.data,
                best=best,
            )
            found.append(made)
    return found


def _settled(first: Trial, plan: Plan) -> bool:
    """Return whether the other kind of rows needs no trial: lengths are unknown, or it would be far too large too."""
    if first.fits:
        return plan.lengths is None
    return -(first.best.spare_bytes or 0) > _FAR * plan.gpu.memory_bytes


def soonest(found: Sequence[Trial]) -> Trial | None:
    """Return the trial that fits and finishes first; packed rows if durations are unknown; None if none fits."""
    fitting = [trial for trial in found if trial.fits]
    timed = [(trial.duration.hours, place) for place, trial in enumerate(fitting) if trial.duration is not None]
    if len(timed) == len(fitting) and fitting:
        return fitting[min(timed)[1]]
    return fitting[0] if fitting else None


def _start(plan: Plan, options: Options, method: str, packed: bool) -> tuple[Start, Subject]:
    """Return the start with the fewest objections of `check` among several attention settings, its errors fixed."""
    made = [_opened(start, options, plan) for start in _starts(plan, method, packed)]
    start, subject = min(made, key=lambda one: _objections(one[1]))
    return start, repaired(subject)[0]


def _starts(plan: Plan, method: str, packed: bool) -> Iterator[Start]:
    capability = plan.gpu.capability
    flash = packed and plan.precision(method) != "fp32" and capability is not None and capability >= (8, 0)
    for attention in (*((_FLASH,) if flash else ()), "sdpa", None):
        yield plan.start(method, packed=packed, attention=attention)


def _opened(start: Start, options: Options, plan: Plan) -> tuple[Start, Subject]:
    subject = open_subject(plan.starter.start(start), options, online=plan.ask.online)
    return start, expandable(subject)


def expandable(subject: Subject) -> Subject:
    """Return the subject with expandable segments, if the trainer has a key for them."""
    change = expandable_segments(subject.run)
    spelling = None if change is None else subject.trainer.spell(subject.run, change)
    if spelling is None or not spelling.edits:
        return subject
    return subject.with_document(apply_edits(subject.document, spelling.edits))


def _objections(subject: Subject) -> tuple[int, int]:
    """Return the number of errors, and the number of findings that are not only about memory."""
    of_memory = {rule.id for rule in rules_for(subject.trainer) if rule.costs_memory}
    found = check_subject(subject, Policy(figures=False)).findings
    return len(subject.stops), sum(one.rule not in of_memory for one in found)


def _fitted(
    subject: Subject, method: str, plan: Plan, first: Trial | None, progress: Progress | None
) -> Attempt | None:
    """Return the fastest variant that fits, or the closest; None if none is as fast as the first trial.

    If it does not fit otherwise, full fine-tuning may use 8-bit optimizer states, and adapters on a mixture of experts
    may leave the experts out, which can then be quantised with the rest. Scripts are launched without a file
    for sharding.
    """
    full_rows = subject.changed(data=NO_DATA).prediction(on_card=False)
    margin = _margin_bytes(full_rows)
    alone = subject.run.batch.gpus == 1  # several cards may divide the weights
    if alone and proof_bytes(subject.run, subject.model, (), full_rows.capacity_bytes or 0):
        return weighed(Attempt(changes=(), run=subject.run, prediction=full_rows), None, margin)
    allow = _SHARDING if subject.run.batch.gpus > 1 and not plan.script else ()
    slowest = None if first is None else _slowest(subject.changed(data=plan.data), first)
    ask = partial(answer_of, margin_bytes=margin, slowest=slowest, progress=progress)
    more = _EIGHT_BIT if method == "full" else _NARROWER
    if more == _NARROWER and not has_experts(subject.run):
        return ask(subject, _axes(allow))
    found = ask(subject, _axes(allow), or_closest=False)
    if found is not None and found.fits:
        return found
    again = subject.apart()
    found = ask(again, _axes((*allow, more)))
    subject.effort.predictions += again.effort.predictions
    return found


def _axes(allow: Sequence[str]) -> tuple[Axis, ...]:
    """Return the axes that may vary, without the allocator, which is already set."""
    return tuple(axis for axis in opened(allow) if axis.name != "allocator")


def _slowest(subject: Subject, first: Trial) -> float | None:
    """Return the seconds per step with which the run would finish slightly after the first trial, or None.

    The tolerance is for searches with other samples.
    """
    speed, done = subject.speed(), first.duration if first.fits else None
    whole = None if speed is None else subject.duration(speed)
    return None if done is None or whole is None else _ABOUT * done.hours * _HOUR / whole.steps


def judged_as(trial: Trial, prediction: Prediction) -> Trial:
    """Return the trial with the prediction of its written file, and what that lacks with its own margin."""
    best = weighed(replace(trial.best, prediction=prediction), trial.best.speed, _margin_bytes(prediction))
    return replace(trial, best=best)


def _margin_bytes(prediction: Prediction) -> int:
    """Return the memory to keep free: the prediction's own error, and at least what `check` wants free on the card."""
    capacity, more = prediction.capacity_bytes or 0, prediction.margin.more
    # what the largest figure may need more whose margin still fits; the start's own may be many times the card
    return max(int(capacity * more / (1 + more)), int(TIGHT * capacity) + 1)


def sampled(data: Data, a_step: int, *, packed: bool) -> Data:
    """Return samples of every length, including the longest, in the order of the data; at least two optimizer steps."""
    more = _MORE_PACKED if packed else 1
    train = _sampled(data.train, max(FEW, 2 * a_step) * more)
    return (
        data
        if train is data.train
        else replace(data, train=train, evaluation=_sampled(data.evaluation, _EVALUATED * more))
    )


def _sampled(lengths: Lengths | None, count: int) -> Lengths | None:
    if lengths is None or lengths.pairs or lengths.packed or len(lengths.tokens) <= count:
        return lengths
    ranked = sorted(range(len(lengths.tokens)), key=lambda place: lengths.tokens[place])
    last = len(ranked) - 1
    kept = sorted(ranked[round(step * last / (count - 1))] for step in range(count))
    return lengths.at(kept)
