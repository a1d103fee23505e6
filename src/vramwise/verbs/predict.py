"""`predict`: predicts a Subject with its data and changes, and compares it with changes (`--what-if`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from vramwise.documents.edit import with_changes
from vramwise.errors import ConfigError, VramwiseError
from vramwise.facts.gpus import find_gpu
from vramwise.limits import ceilings, read_file
from vramwise.notebook.displayed import Displayed
from vramwise.opening.options import Options, PredictOptions
from vramwise.opening.sources import NotOurs, Source
from vramwise.opening.stacks import said_release
from vramwise.opening.subject import Subject, on_target, open_subject, target_of
from vramwise.timeline import MemoryReport
from vramwise.types import Finding, split_key
from vramwise.variants.capacity import on_card
from vramwise.variants.duration import Duration
from vramwise.variants.lengths import Lengths, parse_lengths
from vramwise.variants.prediction import Prediction
from vramwise.variants.speed import Speed, no_speed
from vramwise.variants.verdict import Verdict
from vramwise.verbs.check import Policy, check_subject
from vramwise.verbs.fast_numbers import against_plain
from vramwise.verbs.fitting.shorter_rows import judged

if TYPE_CHECKING:
    from vramwise.verbs.fitting.ways_out import WayOut


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Displayed):
    """A prediction, its verdict, and what would make the run fit if it does not."""

    prediction: Prediction
    verdict: Verdict
    way_out: WayOut | None = None
    # The `fit` command for this config and machine; for a run without a file, the command that was given; "" outside
    # the command line.
    command: str = ""
    # The time of a step and of the whole training; None if unknown.
    speed: Speed | None = None
    duration: Duration | None = None
    no_speed: str = ""  # why there is no speed, as a sentence
    against_plain: str = ""  # what fp8 or torch.compile costs and brings, as a sentence

    @property
    def fits(self) -> bool | None:
        """Whether the run fits and starts; None if no card is named or the answer is open."""
        return self.prediction.fits

    @property
    def needs(self) -> MemoryReport:
        """What the run needs, whatever the card has."""
        return self.prediction.needs


class OnCard(NamedTuple):
    """A run on a card: its prediction, and its verdict there."""

    card: str
    prediction: Prediction
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A run with changes compared with the original: its prediction, and the findings that appear and disappear."""

    changes: tuple[str, ...]
    prediction: Prediction
    verdict: Verdict
    speed: Speed | None = None
    new: tuple[Finding, ...] = ()
    gone: tuple[Finding, ...] = ()


def opened(source: Source, options: Options, ask: PredictOptions, changes: Sequence[str] = ()) -> Subject:
    """Return the subject of a prediction, with the changes applied."""
    try:
        subject = open_subject(source, options, engine=ask.engine, model=ask.model, online=ask.online)
    except NotOurs as error:
        if error.plain is None:
            raise
        plain, said = error.plain
        taken = {name: getattr(said, name) for name in ("trainer", "accelerate", "notes")}
        options = replace(options, gpus=options.gpus or said.gpus, **taken)
        subject = open_subject(plain, options, engine=ask.engine, model=ask.model, online=ask.online)
    _refuse_wrong_types(subject, "")
    subject = _with_lengths(subject, options, ask)
    return changed(subject, options, ask, changes) if changes else subject


def _with_lengths(subject: Subject, options: Options, ask: PredictOptions) -> Subject:
    """Return the subject with the given lengths, or else with those of the data."""
    if ask.lengths is not None and options.data is not None:
        raise VramwiseError("--lengths and --data both set row lengths: use only one")
    train, evaluation = read_lengths(ask.lengths), read_lengths(ask.eval_lengths)
    if train is None:
        subject = subject.with_data(options.data)
        if evaluation is None:
            return subject
        train = subject.data.train
    return subject.changed(data=replace(subject.data, train=train, evaluation=evaluation))


def changed(subject: Subject, options: Options, ask: PredictOptions, changes: Sequence[str]) -> Subject:
    """Return the subject with changes: `key=value` in its config, `package==version` in its stack."""
    versions = tuple(words for words in changes if "==" in words)
    edits = [words for words in changes if "==" not in words]
    if versions:
        options = _with_versions(options, versions)
        target = target_of(subject.document, subject.trainer, options)
        other = on_target(
            subject.document,
            subject.trainer,
            target,
            model=ask.model,
            online=ask.online,
            text_alone=subject.text_alone,
            live=subject.live,
        )
        subject = replace(other, data=subject.data, ignored=subject.ignored)
        _refuse_wrong_types(subject, f"--what-if {', '.join(versions)}: ")
    if not edits:
        return subject
    for words in edits:
        key, equals, _ = words.partition("=")
        unknown = subject.trainer.key_unknown(key, subject.target.stack) if equals and key.strip() else None
        if unknown:
            raise VramwiseError(f"--what-if {words}: {unknown}")
    before = subject.trainer.datasets(subject.document)
    subject = subject.with_document(with_changes(subject.document, edits))
    _refuse_wrong_types(subject, "--what-if: ")
    if ask.lengths is None and options.data is None and subject.trainer.datasets(subject.document) != before:
        return subject.with_data()
    return subject


def _with_versions(options: Options, versions: Sequence[str]) -> Options:
    """Return the options with these versions replacing earlier ones of the same packages."""
    names = {said_release(words)[0] for words in versions}
    kept = tuple(words for words in options.versions if said_release(words)[0] not in names)
    torch = None if "torch" in names else options.torch
    return replace(options, versions=(*kept, *versions), torch=torch)


def predict(subject: Subject, ask: PredictOptions, command: str = "") -> Answer:
    """Return the requested prediction and its consequences."""
    prediction = subject.prediction(steps=ask.steps, limit_bytes=ask.limit_bytes)
    verdict = judged(subject, prediction, ask.limit_bytes)
    speed = subject.speed()
    return Answer(
        prediction=prediction,
        verdict=verdict,
        way_out=_way_out(subject, ask.limit_bytes),
        command=command,
        speed=speed,
        no_speed=no_speed(subject.run, subject.model) if speed is None and subject.target.gpu is not None else "",
        duration=None if speed is None else subject.duration(speed),
        against_plain=against_plain(subject),
    )


def _way_out(subject: Subject, limit_bytes: int | None) -> WayOut | None:
    if subject.prediction(limit_bytes=limit_bytes).memory_fits is not False:
        return None
    from vramwise.verbs.fitting.ways_out import quick_way_out  # late: most runs need no search

    return quick_way_out(subject, limit_bytes=limit_bytes)


# Each scenario is a prediction; this many fit on a screen.
_MOST_SCENARIOS = 16


def scenarios(changes: Sequence[str]) -> list[tuple[str, ...]]:
    """Group changes into scenarios: a key or package that is given several times makes as many scenarios."""
    choices: dict[str, list[str]] = {}
    for words in changes:
        name = words.partition("==" if "==" in words else "=")[0].strip()
        choices.setdefault(name, []).append(words)
    count = prod(len(words) for words in choices.values())
    if count > _MOST_SCENARIOS:
        raise VramwiseError(f"--what-if: {count:,} combinations; at most {_MOST_SCENARIOS} can be shown at once")
    return list(product(*choices.values())) if changes else []


def what_if(before: Subject, options: Options, ask: PredictOptions, changes: Sequence[str]) -> WhatIf:
    """Predict the effect of the changes on memory and findings."""
    after = changed(before, options, ask, changes)
    now, then = [check_subject(subject, Policy(predicts=True)).findings for subject in (before, after)]
    known, still = [{(found.rule, found.key) for found in findings} for findings in (now, then)]
    prediction = after.prediction(steps=ask.steps, limit_bytes=ask.limit_bytes)
    return WhatIf(
        changes=tuple(changes),
        prediction=prediction,
        verdict=judged(after, prediction, ask.limit_bytes),
        speed=after.speed(),
        new=tuple(found for found in then if (found.rule, found.key) not in known),
        gone=tuple(found for found in now if (found.rule, found.key) not in still),
    )


# Common cards, by memory, for the comparison of a run on several cards.
CARDS = (
    *("t4", "rtx-3060", "rtx-3080", "rtx-4070-ti", "rtx-4080", "rtx-3090", "rtx-4090", "l4", "a10g", "rtx-5090"),
    *("a100-40gb", "l40s", "rtx-a6000", "a100-80gb", "h100", "rtx-pro-6000", "h200", "b200", "mi300x"),
)


def on_cards(subject: Subject, prediction: Prediction, names: Sequence[str] = CARDS) -> list[OnCard]:
    """Return the same run on other cards, some of which it may not start on."""
    found = []
    for card in map(find_gpu, names):
        moved = subject.on_card(card)
        there = replace(on_card(prediction, card), stops=moved.stops)
        found.append(OnCard(card.name, there, judged(moved, there, prediction.limit_bytes)))
    return found


def _refuse_wrong_types(subject: Subject, start: str) -> None:
    """Raise an error for values of a wrong type that affect the run.

    Resolving ignores such values, so the prediction would describe another run. Other wrong values only keep the run
    from starting.
    """
    for key, sentence in subject.trainer.type_errors(subject.document, subject.target.stack):
        if split_key(key)[0] not in subject.run.config.asked:
            continue
        if subject.trainer.taken_by(subject.document, subject.target.stack, key):
            continue  # it stops only this release, and a finding says so
        if start:
            raise VramwiseError(f"{start}{sentence}")
        place = subject.run.config.place(key)
        line, column = (place.line, place.column) if place else (None, None)
        raise ConfigError(sentence, line=line, column=column, path=subject.document.place_name)


def read_lengths(name: str | None) -> Lengths | None:
    """Read sample lengths from a file, or return None without one."""
    if name is None:
        return None
    data = read_file(name, ceilings.DATA_BYTES, "a list of lengths, one per line")
    return parse_lengths(data.decode("utf-8", "replace"), name)
