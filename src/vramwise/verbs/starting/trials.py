"""Trials: a method's starting config, fitted to the card; of several the one that trains soonest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from vramwise.documents.edit import apply_edits
from vramwise.options import Options
from vramwise.subject import Subject, open_subject
from vramwise.trainers.rulebook import rules_for
from vramwise.trainers.starting import Start, Starts
from vramwise.types import RunSpec
from vramwise.variants.attempt import Attempt
from vramwise.variants.changes.kernels import expandable_segments
from vramwise.variants.duration import Duration
from vramwise.variants.search.fitness import margin_of, weighed
from vramwise.variants.search.result import Candidate, Fit
from vramwise.variants.verdict import TIGHT
from vramwise.verbs.check import Policy, check_subject
from vramwise.verbs.fitting.fastest import fit_subject
from vramwise.verbs.fitting.ways_out import weights_alone_bytes
from vramwise.verbs.starting.plan import Plan

Progress = Callable[[int, int], None]
_FLASH = "flash_attention_2"
_SHARDING = ("fsdp", "zero")
# Where packed rows miss by more than this share of the card, padded ones would too.
_FAR = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A starting config and its fit; `subject` is the start itself."""

    method: str
    packed: bool
    start: Start
    subject: Subject
    fit: Fit

    @property
    def fits(self) -> bool:
        """Whether a variant fits and starts."""
        return self.fit.best is not None and not self.subject.stops

    @property
    def best(self) -> Candidate:
        """The answer, or the one that misses by least."""
        return self.fit.best or self.fit.closest or self.fit.original

    @property
    def fitted(self) -> Subject:
        """The config of the answer."""
        document = self.best.attempt.document
        return self.subject if document is None else self.subject.with_document(document)

    @property
    def duration(self) -> Duration | None:
        """How long all of it takes, where the data is known."""
        speed = self.best.speed
        return None if speed is None else self.fitted.duration(speed)


def trials(plan: Plan, trainer: Starts, options: Options, method: str, progress: Progress | None) -> list[Trial]:
    """The method with packed and with padded rows, each fitted; the one that `check` objects to is left out."""
    starts = [_start(plan, trainer, options, method, packed) for packed in ((True, False) if plan.packs else (False,))]
    least = min(_objections(subject) for _, subject in starts)
    found: list[Trial] = []
    for start, subject in starts:
        if _objections(subject) > least:
            continue
        fit = _fitted(subject, method, start.script, progress)
        found.append(Trial(method=method, packed=bool(start.wishes.packing), start=start, subject=subject, fit=fit))
        if _settled(found[0], plan):
            break
    return found


def _settled(first: Trial, plan: Plan) -> bool:
    """Whether the other rows need no trial: nothing tells how long samples are, or they are far from fitting too."""
    if first.fits:
        return plan.lengths is None
    return -(first.best.spare_bytes or 0) > _FAR * plan.gpu.memory_bytes


def soonest(found: Sequence[Trial]) -> Trial | None:
    """Of those that fit the one that is done first; packed rows where that is not known."""
    fitting = [trial for trial in found if trial.fits]
    timed = [(trial.duration.hours, place) for place, trial in enumerate(fitting) if trial.duration is not None]
    if len(timed) == len(fitting) and fitting:
        return fitting[min(timed)[1]]
    return fitting[0] if fitting else None


def _start(plan: Plan, trainer: Starts, options: Options, method: str, packed: bool) -> tuple[Start, Subject]:
    """The start that `check` has least against, of those with one attention or another."""
    made = [_opened(start, trainer, options, plan) for start in _starts(plan, method, packed)]
    return min(made, key=lambda one: _objections(one[1]))


def _starts(plan: Plan, method: str, packed: bool) -> Iterator[Start]:
    capability = plan.gpu.capability
    flash = packed and plan.precision(method) != "fp32" and capability is not None and capability >= (8, 0)
    for attention in (*((_FLASH,) if flash else ()), "sdpa", None):
        yield plan.start(method, packed=packed, attention=attention)


def _opened(start: Start, trainer: Starts, options: Options, plan: Plan) -> tuple[Start, Subject]:
    subject = open_subject(trainer.start(start), options, online=plan.ask.online)
    return start, _expandable(subject).with_data()


def _expandable(subject: Subject) -> Subject:
    """With expandable segments, where the trainer has a key for them."""
    change = expandable_segments(subject.run)
    spelling = None if change is None else subject.trainer.spell(subject.run, change)
    if spelling is None or not spelling.edits:
        return subject
    return subject.with_document(apply_edits(subject.document, spelling.edits))


def _objections(subject: Subject) -> tuple[int, int]:
    """How many errors there are, and how many findings of rules that are not about memory alone."""
    of_memory = {rule.id for rule in rules_for(subject.trainer) if rule.costs_memory}
    found = check_subject(subject, Policy(figures=False)).findings
    return len(subject.stops), sum(one.rule not in of_memory for one in found)


def _fitted(subject: Subject, method: str, script: bool, progress: Progress | None) -> Fit:
    """The fastest that fits; a full fine-tune with 8-bit states where it does not fit with others.

    A script is launched without a file that shards.
    """
    prediction = subject.prediction(on_card=False)
    alone = subject.run.batch.gpus == 1  # several cards may share the weights
    if alone and weights_alone_bytes(subject, ()) > (prediction.capacity_bytes or 0):
        attempt = Attempt(changes=(), run=subject.run, prediction=prediction)
        start = weighed(attempt, None, _margin_bytes(subject))
        return Fit(original=start, best=None, closest=start)
    spread = _SHARDING if subject.run.batch.gpus > 1 and not script else ()
    found = _fit(subject, spread, progress)
    if found.best is None and method == "full":
        return _fit(subject.apart(), (*spread, "8bit-optimizer"), progress)
    return found


def _fit(subject: Subject, allow: Sequence[str], progress: Progress | None) -> Fit:
    margin = _margin_bytes(subject)
    return fit_subject(subject, allow=allow, margin_bytes=margin, progress=progress, answer_only=True)


def _margin_bytes(subject: Subject) -> int:
    """What stays free: the prediction's own error, and as much as `check` wants for others on the card."""
    prediction = subject.prediction(on_card=False)
    return max(margin_of(prediction, None), int(TIGHT * (prediction.capacity_bytes or 0)) + 1)


def trained_run(trial: Trial) -> RunSpec:
    """The run of the answer."""
    run = trial.best.run
    return trial.subject.run if run is None else run
