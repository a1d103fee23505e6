"""A Subject: one config, opened once, with everything that every verb asks about it.

Reading happens here: the file or text, files beside it, the project's settings, the model's dimensions. All verbs
(`check`, `fix`, `predict`, `fit`, training, diagnosis) are functions over a Subject, so that they cannot disagree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vramwise.actions import action
from vramwise.allocator.settings import parse_settings
from vramwise.documents.document import parse_document
from vramwise.errors import ConfigError, VramwiseError
from vramwise.facts.models import cached_config, find_model
from vramwise.files import read_config_bytes
from vramwise.options import Command, Options, Text
from vramwise.project import ProjectSettings, project_settings
from vramwise.sidecar import ACCELERATE_FILES, named_by_accelerate, read_side_files
from vramwise.stacks import make_stack
from vramwise.stops import stops_of
from vramwise.targets import make_target
from vramwise.trainers.base import SideFiles, Trainer
from vramwise.trainers.recognise import NOBODYS, Foreign, recognise, unreadable_as
from vramwise.trainers.registry import running, trainer_named
from vramwise.types import Document, Finding, GpuSpec, ModelSpec, RunSpec, Target
from vramwise.variants.duration import Duration, duration
from vramwise.variants.effort import SAMPLE, Effort
from vramwise.variants.lengths import NO_DATA, Data, Lengths
from vramwise.variants.simulations import Simulations

if TYPE_CHECKING:
    from vramwise.variants.prediction import Prediction
    from vramwise.variants.speed import Speed

TEXT = "<text>"
# What trainers call the revision of the base model.
_REVISION_KEYS = ("revision_of_model", "model_revision", "revision")
_IMPORT = re.compile(rb"^(?:import|from)[ \t]+[A-Za-z_]", re.MULTILINE)
# A variable or template that something else fills in before the trainer reads the file.
_PLACEHOLDER = re.compile(r"\$\{?\w|\{\{|<[\w -]+>")
Source = str | Path | Mapping[str, Any]


class NotOurs(ConfigError):  # noqa: N818 (it reads as what happened)
    """A file that is no training config we read: left alone by `check` and `fix`, refused by the other verbs."""

    def __init__(self, foreign: Foreign, message: str = "") -> None:
        remedy = action("name the call" if foreign.kind == "python" else "insist")
        super().__init__(message or f"this is {foreign.what}, which vramwise does not read: {remedy}")
        self.foreign = foreign


_DIVIDED = ("divided",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A config and what it means here. `model` is None where its dimensions are not known: `model_missing` says why."""

    document: Document
    trainer: Trainer
    target: Target
    side_files: SideFiles
    run: RunSpec
    model: ModelSpec | None
    model_missing: str = ""
    # The lengths of its data, where a caller had them read.
    data: Data = NO_DATA
    # No file that the text names is read.
    text_alone: bool = False
    # Rules that the options or the project's settings silence.
    ignored: tuple[str, ...] = ()
    # Predictions that were made of this very run, by question, and its data divided.
    _memo: dict[tuple[object, ...], tuple[Any, object]] = field(default_factory=dict, repr=False, compare=False)
    # What their parts have in common: shared by all variants whatever they differ in.
    _simulations: Simulations = field(default_factory=Simulations, repr=False, compare=False)

    def with_document(self, document: Document) -> Subject:
        """The same subject with another text: read and resolved anew."""
        files = _side_files(self.trainer, document, self.target, self.text_alone)
        run = _resolved(self.trainer, document, self.target, files)
        if run.base_model == self.run.base_model:
            return replace(self, document=document, run=_of_model(run, self.model), _memo={})
        model, missing = _model(run.base_model, document.path, online=False, text_alone=self.text_alone)
        run = _of_model(run, model)
        return replace(self, document=document, run=run, model=model, model_missing=missing, _memo={})

    def apart(self, effort: Effort | None = None) -> Subject:
        """The same subject, keeping what it works out to itself: for who keeps few of many variants.

        `effort` counts its work.
        """
        return replace(self, _memo={}, _simulations=Simulations(effort=effort or Effort()))

    def knowing(self, other: Subject) -> Subject:
        """The same subject with what was worked out for another: what both have in common is not worked out again."""
        return replace(self, data=other.data, _memo={}, _simulations=other._simulations)

    @property
    def effort(self) -> Effort:
        """What was worked out for this subject and all its variants."""
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
        """What the run will need; a VramwiseError where the model is not known.

        Without `on_card` what becomes of a run that would reserve more than there is stays open.
        """
        if self.model is None:
            raise VramwiseError(self.model_missing)
        # Late: it loads the ghost run and the allocator, which `check` without a card never asks.
        from vramwise.variants.prediction import predict_run

        lengths = self.divided.train if lengths is None else lengths
        eval_lengths = self.divided.evaluation if eval_lengths is None else eval_lengths
        key = (id(lengths), id(eval_lengths), steps, limit_bytes, on_card)
        if key not in self._memo:
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
            prediction = replace(prediction, stops=self.stops).assuming(*self.data.notes, *self._assumed())
            # The lengths are kept, so that their ids stay theirs.
            self._memo[key] = (prediction, (lengths, eval_lengths))
        found: Prediction = self._memo[key][0]
        return found

    def _assumed(self) -> tuple[str, ...]:
        """What was assumed of a script: of keys that decide the run, and of the script as a whole."""
        script = self.document.script
        idle = self.document.values.keys() - self.run.config.asked
        return () if script is None else tuple(one for one in script.assumed if one.partition(":")[0] not in idle)

    @property
    def stops(self) -> tuple[Finding, ...]:
        """The errors for which it does not start, or is not the run that the file describes."""
        return stops_of(self.run, self.trainer, self.ignored)

    @property
    def divided(self) -> Data:
        """The lengths of its data, those of held-out samples apart."""
        if self.data.train is None:
            return self.data
        # Late: only predictions ask for it.
        from vramwise.variants.held_out import divided

        if _DIVIDED not in self._memo:
            self._memo[_DIVIDED] = (divided(self.data, self.run, self.trainer.schedule(self.document)), None)
        found: Data = self._memo[_DIVIDED][0]
        return found

    def speed(self) -> Speed | None:
        """How fast it trains, with the batches of its data; None where that is not known, or a step is too large."""
        if self.model is None:
            return None
        # Late: `check` and `fix` ask for memory alone.
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
        """How long all of the training takes; None where the config names neither its steps nor data that is here."""
        return duration(self.run, self.trainer.schedule(self.document), self.data.train, speed)

    def with_data(self, named: str | None = None) -> Subject:
        """The same subject with the lengths of its data: of what is named, else of the config's local files.

        An empty name: of none, so that rows count as full.
        """
        if named == "" or self.text_alone:
            return replace(self, data=replace(NO_DATA, named=named), _memo={})
        # Late: data is read for predictions only.
        from vramwise.dataset.reading import read_blocks, read_named

        tokenizer = _model_folder(self.run.base_model, self.model)
        if named is not None:
            train = read_named(named, tokenizer)
            return replace(self, data=Data(train=train, evaluation=train, named=named), _memo={})
        path = self.document.path
        folder = Path() if path in ("-", TEXT) else Path(path).parent
        data = read_blocks(self.trainer.datasets(self.document), folder, tokenizer)
        return self if data == self.data else replace(self, data=data, _memo={})

    def on_card(self, gpu: GpuSpec) -> Subject:
        """The same run on another card: what the config means is not asked again."""
        target = replace(self.target, gpu=gpu)
        return replace(self, target=target, run=replace(self.run, target=target), _memo={})

    def moved_to(self, gpu: GpuSpec) -> Subject:
        """The same config on another card: resolved anew."""
        target = replace(self.target, gpu=gpu)
        run = _of_model(_resolved(self.trainer, self.document, target, self.side_files), self.model)
        return replace(self, target=target, run=run, _memo={})

    def with_run(self, run: RunSpec) -> Subject:
        """The same config with fields that the caller decided otherwise than the file (training does)."""
        return replace(self, run=run, _memo={})


def open_subject(
    source: Source,
    options: Options | None = None,
    *,
    engine: str | None = None,
    model: str | None = None,
    online: bool = False,
) -> Subject:
    """Read a config (a path, `-`, a Text or a mapping) and resolve it; NotOurs for foreign files.

    `engine` names a trainer that runs the file in place of its own; `model` replaces the file's base model.
    """
    source, options = started(source, options or Options())
    if model is not None and not isinstance(source, Mapping | Text) and str(source).endswith((".py", ".ipynb")):
        options = replace(options, settings=(*options.settings, f"model_name_or_path={model}"))
    return subject_of(read_document(source, options), options, engine=engine, model=model, online=online)


def started(source: Source, options: Options) -> tuple[Source, Options]:
    """What a launch line or a shell script starts, with the options that it adds; other sources as they are."""
    if isinstance(source, Mapping | Text) or not (isinstance(source, Command) or str(source).endswith(".sh")):
        return source, options
    from vramwise import scripts  # late: configs do not need it

    return (scripts.launched if isinstance(source, Command) else scripts.launched_by)(str(source), options)


def subject_of(
    document: Document,
    options: Options,
    *,
    engine: str | None = None,
    model: str | None = None,
    online: bool = False,
) -> Subject:
    """A Subject from a document that has been read."""
    trainer = trainer_of(document, options.trainer)
    if engine is not None:
        trainer = running(trainer, engine)
    target = target_for(document.path, _with_pins(document, options), trainer)
    subject = on_target(document, trainer, target, model=model, online=online, text_alone=options.text_alone)
    return replace(subject, ignored=(*options.ignore, *project_for(document.path, options).ignore))


def _with_pins(document: Document, options: Options) -> Options:
    """The options with the versions that a script or notebook installs, where they say none."""
    pinned = {} if document.script is None else document.script.versions
    said = {words.partition("==")[0].strip().lower() for words in options.versions}
    said |= {"torch"} if options.torch is not None else set()
    more = [f"{name}=={version}" for name, version in pinned.items() if name not in said]
    return replace(options, versions=(*options.versions, *more)) if more and options.stack is None else options


def on_target(
    document: Document,
    trainer: Trainer,
    target: Target,
    *,
    model: str | None = None,
    online: bool = False,
    text_alone: bool = False,
) -> Subject:
    """A Subject for a target that is known."""
    side_files = _side_files(trainer, document, target, text_alone)
    run = _resolved(trainer, document, target, side_files)
    wanted = model or run.base_model
    if wanted is None and document.script is not None:
        return Subject(
            document=document,
            trainer=trainer,
            target=target,
            side_files=side_files,
            run=run,
            model=None,
            model_missing=_unsaid_model(document),
            text_alone=text_alone,
        )
    found, missing = _model(wanted, document.path, online=online, revision=_revision(run), text_alone=text_alone)
    return Subject(
        document=document,
        trainer=trainer,
        target=target,
        side_files=side_files,
        run=_of_model(run, found),
        model=found,
        model_missing=missing,
        text_alone=text_alone,
    )


def _resolved(trainer: Trainer, document: Document, target: Target, side_files: SideFiles) -> RunSpec:
    run = trainer.resolve(document, target, side_files)
    run.config.resolved()
    return run


def _unsaid_model(document: Document) -> str:
    """Why a script's model is not known, and how to supply it."""
    assert document.script is not None
    found = next((one for one in document.script.unsaid if one.key == "model_name_or_path"), None)
    if found is None:
        return f"no model in the training call of {document.path}: use --model"
    either = f" ({' or '.join(map(str, found.either))})" if found.either else ""
    return (
        f"unknown model in {document.path}: {found.why} (line {document.label(found.line)}){either}; set it with "
        f"--set {found.name}=… or --model"
    )


def _of_model(run: RunSpec, model: ModelSpec | None) -> RunSpec:
    """The run with the word for its model's architecture, where that is known.

    A text model inside a multimodal one goes by the outer one's name, which is its own without `_text`; where it is
    another model's, the outer name is not known.
    """
    if model is None:
        return run
    kind: str | None = model.model_type
    if model.text_part:
        kind = model.model_type.removesuffix("_text") if model.model_type.endswith("_text") else None
    unfollowed = tuple(one for one in run.unfollowed if model.num_experts or not one.experts_only)
    return replace(run, model_type=kind, unfollowed=unfollowed)


def trainer_of(document: Document, insisted: str | None = None) -> Trainer:
    """Whose file it is; NotOurs where it is none of ours."""
    if insisted is not None:
        return trainer_named(insisted)
    if document.script is not None:
        kind = document.script.kind
        return trainer_named(f"{document.script.trainer}:{kind}" if kind else document.script.trainer)
    found = recognise(document.values)
    if isinstance(found, Foreign):
        error = NotOurs(found)
        error.path = document.path
        raise error
    return found


def read_document(source: Source, options: Options | None = None) -> Document:
    """A config as a document; a ConfigError that names the file where it cannot be one.

    A text that cannot be read and is plainly another tool's is NotOurs, unless the caller insists; with `ours_only`
    also one that nothing speaks for.
    """
    options = options or Options()
    path = path_of(source)
    try:
        data = _bytes_of(source, path)
        if is_source(path, data):
            return _read_source(path, data, options)
        try:
            document = parse_document(path, data)
            return _with_settings(document, options.settings) if options.settings else document
        except ConfigError:
            foreign = None if options.trainer else unreadable_as(data.decode("utf-8", "replace"))
            if foreign is None or (foreign is NOBODYS and not options.ours_only):
                raise
            raise NotOurs(foreign) from None
    except ConfigError as error:
        error.path = path
        raise


def _with_settings(document: Document, settings: tuple[str, ...]) -> Document:
    from vramwise.documents.change import with_changes  # late: only --set and launch lines change what is read

    return with_changes(document, settings)


def is_source(path: str, data: bytes) -> bool:
    """Whether a file is Python: a script or a notebook, by its name, or by what a text begins with."""
    if path.endswith((".py", ".ipynb")):
        return True
    notebook = data.lstrip()[:1] == b"{" and b'"nbformat"' in data
    return path == TEXT and (notebook or _IMPORT.search(data[:20_000]) is not None)


def _read_source(path: str, data: bytes, options: Options) -> Document:
    from vramwise.scripts import read_training  # late: configs do not need it
    from vramwise.trainers.scripts.reading import NoTraining

    try:
        return read_training(path, data, options)
    except NoTraining as nothing:
        what = Foreign(kind="python", what="Python source that calls no known trainer")
        raise NotOurs(what, nothing.message) from None


def _bytes_of(source: Source, path: str) -> bytes:
    if isinstance(source, Mapping):
        return _as_yaml(source)
    return str(source).encode("utf-8", "surrogatepass") if path == TEXT else read_config_bytes(path)


def path_of(source: Source) -> str:
    """The path of a source; for a text or mapping a word that stands for it."""
    return TEXT if isinstance(source, Mapping | Text) else str(source)


def _as_yaml(values: Mapping[str, Any]) -> bytes:
    import yaml

    try:
        text: str = yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # ValueError: a number of thousands of digits
        raise ConfigError("a mapping may contain only text, numbers, lists and mappings") from error
    return text.encode("utf-8")


def _side_files(trainer: Trainer, document: Document, target: Target, text_alone: bool) -> SideFiles:
    """The files that the config and the launcher name, and those that accelerate's own file names."""
    launched = [target.accelerate[key] for key in ACCELERATE_FILES if target.accelerate.get(key)]
    names = (*trainer.side_files(document), *launched)
    if text_alone:
        return dict.fromkeys(names)
    try:
        found = read_side_files(names, document.path)
        return found | read_side_files(named_by_accelerate(found.values()), document.path)
    except ConfigError as error:
        error.path = document.path
        raise


def _model_folder(name: str | None, model: ModelSpec | None) -> Path | None:
    """Where the model's files lie on this machine, its tokenizer among them; None where they do not."""
    if name is None or model is None:
        return None
    here = Path(model.source)
    if here.name == "config.json":
        return here.parent
    cached = cached_config(name)
    return cached and cached.parent


def _revision(run: RunSpec) -> str | None:
    """The branch, tag or commit of the model that the config names."""
    found = next((value for key in _REVISION_KEYS if isinstance(value := run.config.get(key), str)), None)
    return found or None


def _model(
    name: str | None, path: str, *, online: bool, revision: str | None = None, text_alone: bool = False
) -> tuple[ModelSpec | None, str]:
    """The model's dimensions, or why they are not known."""
    if name is None:
        return None, f"{path} names no base model: {action('add a model')}"
    if _PLACEHOLDER.search(name):
        return (
            None,
            f"the base model of {path} is the placeholder {name}: {action('write a model')}",
        )
    folder = Path() if path in ("-", TEXT) else Path(path).parent
    try:
        return find_model(name, base_dir=folder, online=online, revision=revision, by_id=text_alone), ""
    except VramwiseError as error:
        return None, str(error)


def target_for(path: str, options: Options, trainer: Trainer) -> Target:
    """The machine meant for a file: the options, the closest pyproject.toml, this machine."""
    project = project_for(path, options)
    # A list of versions may change while a program goes on: it is read again each time.
    remembered = options.stack is None and project.stack is None
    return (_target if remembered else _target.__wrapped__)(options, project, trainer.name)


def project_for(path: str, options: Options) -> ProjectSettings:
    """The settings of the project a file belongs to."""
    if options.text_alone:
        return ProjectSettings()
    return _project("." if path in ("-", TEXT) else str(Path(path).parent))


@lru_cache(maxsize=256)
def _project(folder: str) -> ProjectSettings:
    return project_settings(Path(folder))


@lru_cache(maxsize=64)
def _target(options: Options, project: ProjectSettings, name: str) -> Target:
    trainer = trainer_named(name)
    alloc_conf = options.alloc_conf if options.alloc_conf is not None else project.alloc_conf
    try:
        # A version on the command line wins over the project's, package by package.
        said = {words.partition("==")[0].strip(): words for words in (*project.versions, *options.versions)}
        torch = options.torch or (None if "torch" in said else project.torch)
        stack = make_stack(
            trainer.package,
            trainer.releases(),
            said=tuple(said.values()),
            torch=torch,
            file=options.stack or project.stack,
            site=options.site,
        )
        target = make_target(
            gpu=options.gpu or project.gpu,
            gpus=options.gpus or project.gpus,
            stack=stack,
            alloc_conf=alloc_conf,
            launcher=options.launcher or project.launcher or "cli",
            accelerate=dict(options.accelerate),
        )
        if alloc_conf:
            parse_settings(alloc_conf, target.torch)  # a typo is an error here, as it would be in torch
    except VramwiseError as error:
        raise VramwiseError(f"{error} (see also {project.path})" if project.path else str(error)) from error
    return target
