"""Subject: one config, opened once, with everything that the verbs need to know about it.

All reading happens here: the file or text, the files that it names, the project's settings, the model's dimensions. All
verbs (`check`, `fix`, `predict`, `fit`, training, diagnosis) are functions of a Subject, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vramwise.errors import ConfigError, VramwiseError
from vramwise.models.known import of_count
from vramwise.opening.base_models import base_model, model_folder, revision_of, with_model_type
from vramwise.opening.options import Live, Options, Text
from vramwise.opening.sidecar import ACCELERATE_FILES, named_by_accelerate, read_side_files, texts_of
from vramwise.opening.sources import TEXT, Source, read_document, started, trainer_of
from vramwise.opening.stops import stops_of
from vramwise.opening.targets import project_for, target_for
from vramwise.trainers.base import SideFiles, Trainer
from vramwise.trainers.registry import running
from vramwise.types import Asked, Document, Finding, GpuSpec, ModelSpec, RunSpec, Target
from vramwise.variants.effort import SAMPLE, Effort
from vramwise.variants.lengths import NO_DATA, Data, Lengths
from vramwise.variants.simulations import Simulations
from vramwise.variants.versions import NEWEST, differing

if TYPE_CHECKING:
    from vramwise.variants.duration import Duration
    from vramwise.variants.prediction import Prediction
    from vramwise.variants.speed import Speed


@dataclass(slots=True)
class _Memo:
    """Predictions of one run, with the row lengths and the other arguments that they are for, and its divided data."""

    predictions: list[tuple[Lengths | None, Lengths | None, tuple[object, ...], Prediction]] = field(
        default_factory=list
    )
    divided: Data | None = None

    def prediction(
        self, train: Lengths | None, evaluation: Lengths | None, asked: tuple[object, ...]
    ) -> Prediction | None:
        """Return the prediction for these very lengths, which are too many to compare, and these arguments."""
        same = (one for one in self.predictions if one[0] is train and one[1] is evaluation and one[2] == asked)
        return next((one[3] for one in same), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A config opened for a target. `model` is None if its dimensions are unknown; `model_missing` says why."""

    document: Document
    trainer: Trainer
    target: Target
    side_files: SideFiles
    run: RunSpec
    model: ModelSpec | None
    model_missing: str = ""
    # The lengths of its data, if a caller had them read.
    data: Data = NO_DATA
    # True: no file that the text names is read.
    text_alone: bool = False
    # Rules that the options or the project's settings silence.
    ignored: tuple[str, ...] = ()
    # The objects of a running program that it was opened from, if it was.
    live: Live | None = None
    # How the launch line or shell script was read.
    notes: tuple[str, ...] = ()
    # What was computed of this run before.
    _memo: _Memo = field(default_factory=lambda: _Memo(), repr=False, compare=False)
    # The cache of simulations, shared by all variants of this subject.
    _simulations: Simulations = field(default_factory=Simulations, repr=False, compare=False)

    def changed(self, **fields: Any) -> Subject:
        """Return the subject with other values of some fields, and none of the predictions made before."""
        return replace(self, **fields, _memo=_Memo())

    def with_document(self, document: Document) -> Subject:
        """Return the subject with another text, read and resolved again."""
        files = _side_files(self.trainer, document, self.target, self.text_alone)
        run = _resolved(self.trainer, document, self.target, files)
        if run.base_model == self.run.base_model:
            return self.changed(document=document, run=with_model_type(run, self.model))
        model, missing = base_model(run.base_model, document, online=False, text_alone=self.text_alone)
        run = with_model_type(run, model)
        return self.changed(document=document, run=run, model=model, model_missing=missing)

    def apart(self, effort: Effort | None = None) -> Subject:
        """Return the subject with empty caches of its own, for callers that keep few of many variants.

        `effort` counts its work.
        """
        return self.changed(_simulations=Simulations(effort=effort or Effort()))

    def knowing(self, other: Subject) -> Subject:
        """Return the subject with the data and simulation cache of another, so that common work is not repeated."""
        return self.changed(data=other.data, _simulations=other._simulations)

    @property
    def simulations(self) -> Simulations:
        """The cache of ghost runs and allocator runs, shared by all variants."""
        return self._simulations

    @property
    def effort(self) -> Effort:
        """The work done so far for this subject and all its variants."""
        return self._simulations.effort

    def prediction(
        self,
        *,
        lengths: Lengths | None = None,
        eval_lengths: Lengths | None = None,
        steps: int | None = None,
        limit_bytes: int | None = None,
        on_card: bool = True,
    ) -> Prediction:
        """Predict the memory of the run; raises VramwiseError if the model is unknown.

        With `on_card=False`, it is left open what happens to a run that would reserve more than the card has.
        """
        if self.model is None:
            raise VramwiseError(self.model_missing)
        # Late: it loads the ghost run and the allocator, which `check` does not need without a card.
        from vramwise.variants.prediction import predict_run

        lengths = self.divided.train if lengths is None else lengths
        eval_lengths = self.divided.evaluation if eval_lengths is None else eval_lengths
        asked = (steps, limit_bytes, on_card)
        known = self._memo.prediction(lengths, eval_lengths, asked)
        if known is not None:
            return known
        self.effort.spend(SAMPLE * self.data.samples)
        prediction = predict_run(
            self.run,
            self.model,
            lengths=lengths,
            eval_lengths=eval_lengths,
            steps=steps,
            limit_bytes=limit_bytes,
            simulations=self._simulations,
            on_card=on_card,
        )
        self.effort.predicted()
        late = stops_of(self.run, self.trainer, self.ignored, prediction.needs)
        prediction = replace(prediction, stops=(*self.stops, *late)).assuming(*self.data.notes, *self._assumed())
        prediction = prediction.assuming(*self.notes, kind="source")
        self._memo.predictions.append((lengths, eval_lengths, asked, prediction))
        return prediction

    def _assumed(self) -> tuple[str, ...]:
        """Return the assumptions about a script: about keys that affect the run, and about the whole script."""
        script, seen = self.document.script, () if self.live is None else self.live.notes
        idle = self.document.values.keys() - self.run.config.asked
        read = () if script is None else tuple(str(one) for one in script.assumed if one.about not in idle)
        return (*read, *seen)

    @property
    def stops(self) -> tuple[Finding, ...]:
        """The errors that keep the run from starting, or make it differ from what the file describes."""
        return stops_of(self.run, self.trainer, self.ignored)

    @property
    def divided(self) -> Data:
        """The lengths of its data, with held-out samples separated."""
        if self.data.train is None:
            return self.data
        # Late: only predictions need it.
        from vramwise.variants.held_out import divided

        if self._memo.divided is None:
            self._memo.divided = divided(self.data, self.run, self.trainer.schedule(self.document))
        return self._memo.divided

    def speed(self) -> Speed | None:
        """Predict the training speed with the batches of its data; None if it is unknown or a step is too large."""
        if self.model is None:
            return None
        # Late: `check` and `fix` need only memory.
        from vramwise.variants.batches import train_shapes
        from vramwise.variants.speed import speed_of

        lengths = self.divided.train
        shapes = train_shapes(self.run, lengths) if lengths else ()
        self.effort.spend(SAMPLE * self.data.samples)
        try:
            return speed_of(self.run, self.model, shapes, effort=self.effort)
        except VramwiseError:
            return None

    def duration(self, speed: Speed) -> Duration | None:
        """Predict the duration of the whole training; None if neither the steps nor the data are known."""
        if self.live is not None and not self.live.ends:
            return None
        from vramwise.variants.duration import duration  # late: `check` needs only memory

        return duration(self.run, self.trainer.schedule(self.document), self.data.train, speed)

    def with_data(self, named: str | None = None) -> Subject:
        """Return the subject with the lengths of its data: of `named`, or else of the config's local files.

        With an empty name no data is read, so every row counts as full.
        """
        if named == "" or self.text_alone:
            return self.changed(data=replace(NO_DATA, named=named))
        if named is None and self.live is not None:
            return self.changed(data=self.live.data or NO_DATA)
        # Late: data is read only for predictions.
        from vramwise.opening.data.reading import read_blocks, read_named

        tokenizer = model_folder(self.run.base_model, self.model)
        if named is not None:
            train = read_named(named, tokenizer)
            return self.changed(data=Data(train=train, evaluation=train, named=named))
        path = self.document.path
        folder = Path() if path in ("-", TEXT) else Path(path).parent
        data = read_blocks(self.trainer.datasets(self.document), folder, tokenizer)
        return self if data == self.data else self.changed(data=data)

    def on_card(self, gpu: GpuSpec) -> Subject:
        """Return the same run on another card, without resolving the config again."""
        target = replace(self.target, gpu=gpu)
        return self.changed(target=target, run=replace(self.run, target=target))

    def moved_to(self, gpu: GpuSpec) -> Subject:
        """Return the same config on another card, resolved again."""
        target = replace(self.target, gpu=gpu)
        run = with_model_type(_resolved(self.trainer, self.document, target, self.side_files), self.model)
        return self.changed(target=target, run=run)

    def with_parameters(self, count: int) -> Subject:
        """Return the subject with a plain model of so many parameters, as a log prints them, if its own is unknown."""
        model = of_count(self.run.base_model or "the model", count) if self.model is None else None
        return self if model is None else self.changed(model=model, run=with_model_type(self.run, model))

    def with_run(self, run: RunSpec) -> Subject:
        """Return the subject with a run in which the caller changed some fields (training does this)."""
        return self.changed(run=run)


def open_subject(
    source: Source,
    options: Options | None = None,
    *,
    engine: str | None = None,
    model: str | None = None,
    online: bool = False,
) -> Subject:
    """Read a config (a path, `-`, a Text or a mapping) and resolve it; raises NotOurs for other files.

    `engine` names a trainer that runs the file instead of its own. `model` replaces the file's base model.
    """
    source, options = started(source, options or Options())
    if model is not None and not isinstance(source, Mapping | Text) and str(source).endswith((".py", ".ipynb")):
        options = replace(options, settings=(*options.settings, f"model_name_or_path={model}"))
    live = source if isinstance(source, Live) else None
    return subject_of(read_document(source, options), options, engine=engine, model=model, online=online, live=live)


def subject_of(
    document: Document,
    options: Options,
    *,
    engine: str | None = None,
    model: str | None = None,
    online: bool = False,
    live: Live | None = None,
) -> Subject:
    """Return the Subject of a document. `live`: the objects that the document describes."""
    trainer = trainer_of(document, options.trainer)
    if live is not None:
        from vramwise.opening.live import as_it_is  # late: files do not need it

        trainer = as_it_is(trainer, document, live)
    if engine is not None:
        trainer = running(trainer, engine)
    target = target_of(document, trainer, options)
    subject = on_target(document, trainer, target, model=model, online=online, text_alone=options.text_alone, live=live)
    subject = subject if live is not None else _with_guess(subject)
    ignored = (*options.ignore, *project_for(document.path, options).ignore)
    return replace(subject, ignored=ignored, notes=options.notes)


def target_of(document: Document, trainer: Trainer, options: Options) -> Target:
    """Return the target of a document, with the releases that it was written for where nothing else names any."""
    pinned = () if document.script is None or options.stack is not None else tuple(document.script.versions.items())
    target = target_for(document.path, options, trainer.name, pinned)
    dated = () if target.launcher == "module" and trainer.drops_unknown else trainer.dated(document, target.stack)
    return target_for(document.path, options, trainer.name, pinned, dated) if dated else target


def on_target(
    document: Document,
    trainer: Trainer,
    target: Target,
    *,
    model: str | None = None,
    online: bool = False,
    text_alone: bool = False,
    live: Live | None = None,
) -> Subject:
    """Return the Subject of a document for a given target."""
    side_files = _side_files(trainer, document, target, text_alone)
    run = _resolved(trainer, document, target, side_files)
    wanted = model or run.base_model
    if live is not None and model is None:
        found, missing = live.model, live.model_missing
    else:
        found, missing = base_model(wanted, document, online=online, revision=revision_of(run), text_alone=text_alone)
    return Subject(
        document=document,
        trainer=trainer,
        target=target,
        side_files=side_files,
        run=with_model_type(run, found),
        model=found,
        model_missing=missing,
        text_alone=text_alone,
        live=live,
    )


def _with_guess(subject: Subject) -> Subject:
    """Return the subject with what depends on the trainer's release, if that is only assumed to be the newest."""
    stack, package = subject.target.stack, subject.trainer.package
    release = stack.releases.get(package)
    before = subject.trainer.oldest_for(subject.document, stack) if release and release.origin.why == NEWEST else None
    if release is None or before is None:
        return subject
    other = _resolved(subject.trainer, subject.document, replace(subject.target, stack=before), subject.side_files)
    why = (
        f"{NEWEST}; {before.releases[package].version}{differs}"
        if (differs := differing(subject.run, other))
        else NEWEST
    )
    marked = replace(release, origin=replace(release.origin, why=why))
    target = replace(subject.target, stack=replace(stack, releases={**stack.releases, package: marked}))
    return replace(subject, target=target, run=replace(subject.run, target=target))


def _resolved(trainer: Trainer, document: Document, target: Target, side_files: SideFiles) -> RunSpec:
    run = trainer.resolve(document, target, side_files)
    return replace(run, config=run.config.settled()) if isinstance(run.config, Asked) else run


def _side_files(trainer: Trainer, document: Document, target: Target, text_alone: bool) -> SideFiles:
    """Read the files that the config and the launcher name, and those that accelerate's own file names."""
    launched = [target.accelerate[key] for key in ACCELERATE_FILES if target.accelerate.get(key)]
    names = (*trainer.side_files(document), *launched)
    if text_alone:
        return dict.fromkeys(names)
    try:
        found = read_side_files(names, document.path, texts_of(target.accelerate))
        return found | read_side_files(named_by_accelerate(found.values()), document.path)
    except ConfigError as error:
        error.path = document.path
        raise
