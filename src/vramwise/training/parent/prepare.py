"""Before the first step: check, prediction and decisions, collected in a plan. Starts nothing and imports no torch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from vramwise.errors import VramwiseError
from vramwise.opening.options import Options
from vramwise.opening.sources import read_document, trainer_of
from vramwise.opening.subject import Subject, open_subject
from vramwise.trainers.registry import EMBEDDED
from vramwise.training.parent import decide
from vramwise.training.parent.engines import choose_engine
from vramwise.training.parent.expected import memory_of, predicted_decision
from vramwise.training.parent.extras import find_command, site_of
from vramwise.training.parent.hosted_engines import (
    guard_environment,
    in_env,
    kind_with_a_command,
    resumable,
    torchrun_environment,
)
from vramwise.training.parent.refusing import refuse_what_the_engine_cannot, trusted
from vramwise.training.parent.remembered import Found, refuse_earlier_engine, with_found_batches
from vramwise.training.parent.resuming import Wanted, decide_start, settings_of
from vramwise.training.plan import Decision, GuardThresholds, TrainPlan, card_of, target_of
from vramwise.types import Document, Finding, ModelSpec, RunSpec, Severity
from vramwise.variants.prediction import Prediction
from vramwise.verbs.check import check_subject, policy_for
from vramwise.verbs.fitting.shorter_rows import judged

# Engines that use the dtype decided here; the others read it only from their file.
_DTYPES_DECIDED = (EMBEDDED, "axolotl")
_DEFAULT_OUTPUT = "./model-out"
_DEFAULT_SEED = 42


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """The options of `train`."""

    target: Options = field(default_factory=Options)
    engine: str | None = None  # None: the file's trainer if it is installed, else the embedded engine
    force: bool = False
    recover: bool = True
    random_weights: bool = False
    resume: bool = False
    fresh: bool = False  # start from scratch although an earlier run left checkpoints
    memory_limit_bytes: int | None = None
    resume_from: str | None = None  # the folder of a checkpoint, which may be another trainer's
    trust_remote_code: bool = False  # permitted by the user; a config cannot permit it


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Everything that is known before the first step."""

    subject: Subject
    plan: TrainPlan
    findings: Sequence[Finding]
    prediction: Prediction | None

    @property
    def document(self) -> Document:
        """The config."""
        return self.subject.document

    @property
    def run(self) -> RunSpec:
        """The run as decided."""
        return self.subject.run

    @property
    def model(self) -> ModelSpec | None:
        """The model, if its dimensions are known."""
        return self.subject.model

    @property
    def errors(self) -> list[Finding]:
        """The findings that stop the run."""
        return [found for found in self.findings if found.severity is Severity.ERROR]


def prepare(path: str, options: TrainOptions) -> Prepared:
    """Read, check, decide and predict.

    Raises VramwiseError for what the engine cannot do at all; findings and misfits are returned.
    """
    options, engine = with_engine(path, options)
    subject = _open(path, options)
    report = check_subject(subject, policy_for(path, options.target, predicts=False))
    if report.error is not None:
        raise report.error
    run = subject.run
    if run.base_model is None:
        raise VramwiseError(f"{path} names no {run.keys.get('base_model', 'base_model')}")
    trusts = trusted(run.config, by_user=options.trust_remote_code)
    refuse_what_the_engine_cannot(path, subject, options, engine, lambda one: predict_subject(one, options))
    own = in_env(run)  # allocator variables in the file's `env:`
    environment, settings, allocator = decide.decide_allocator(run.target, own)
    found = Found(allocator=settings, memory_limit_bytes=options.memory_limit_bytes)
    remembers = options.engine == EMBEDDED and _resumes(run, options)
    run, remembered = with_found_batches(subject, _output_dir(run), found) if remembers else (run, None)
    run, dtype = decide.decide_dtypes(run.changed(allocator=settings), decides=options.engine in _DTYPES_DECIDED)
    run = decide.as_loaded(run, random_weights=options.random_weights)
    decisions = [engine, allocator, dtype, decide.decide_batch(run), decide.decide_eval(run), decide.decide_shapes(run)]
    if remembered is not None:
        decisions.append(remembered)
    subject = subject.with_run(run)
    prediction = predict_subject(subject, options)
    decisions.append(memory_decision(subject, prediction))
    start = decide_start(_wanted(run, options), _output_dir(run), settings_of(run, _seed(run)))
    environment |= _launch_environment(run, options)
    plan = plan_of(subject.document, run, options, environment, prediction, [*decisions, *start.decisions])
    plan = replace(plan, resume_from=start.checkpoint, run=start.run, trust_remote_code=trusts)
    return Prepared(subject=subject, plan=plan, findings=report.findings, prediction=prediction)


def with_engine(path: str, options: TrainOptions) -> tuple[TrainOptions, Decision]:
    """Return the options with the engine, and why it was chosen."""
    document = read_document(path, options.target)
    owner = trainer_of(document, options.target.trainer)
    if options.resume or document.values.get("resume_from_checkpoint") is True:
        refuse_earlier_engine(_absolute(document.values.get("output_dir", _DEFAULT_OUTPUT)), owner)
    engine = choose_engine(path, owner, options.engine, random_weights=options.random_weights)
    command = None if engine.value == EMBEDDED else find_command(engine.value)
    site = () if command is None else site_of(command)  # its versions decide, not those installed with us
    return replace(options, engine=engine.value, target=replace(options.target, site=site)), engine


def _open(path: str, options: TrainOptions) -> Subject:
    """Open the config as the engine reads it: with its own trainer, or with the embedded engine."""
    return open_subject(path, options.target, engine=EMBEDDED if options.engine == EMBEDDED else None)


def _launch_environment(run: RunSpec, options: TrainOptions) -> dict[str, str]:
    """Return variables that the way of starting a trainer needs."""
    if options.engine == "axolotl":
        return guard_environment(_output_dir(run))
    return torchrun_environment(run, os.environ) if options.engine == "llamafactory" else {}


def predict_subject(subject: Subject, options: TrainOptions) -> Prediction | None:
    """Return the prediction; None without a card or a known model."""
    if subject.model is None or (subject.target.gpu is None and options.memory_limit_bytes is None):
        return None
    return subject.prediction(limit_bytes=options.memory_limit_bytes)


def memory_decision(subject: Subject, prediction: Prediction | None) -> Decision:
    """Return the predicted memory as a decision, or why it is unknown."""
    if prediction is not None:
        return predicted_decision(prediction, judged(subject, prediction, prediction.limit_bytes))
    why = subject.model_missing if subject.model is None else "no GPU here: training on the CPU"
    return Decision(name="memory", value="not predicted", why=why)


def plan_of(
    document: Document,
    run: RunSpec,
    options: TrainOptions,
    environment: dict[str, str],
    prediction: Prediction | None,
    decisions: Sequence[Decision],
) -> TrainPlan:
    """Return the plan of the first attempt."""
    output = _output_dir(run)
    target = run.target
    return TrainPlan(
        config_path=str(Path(document.path).absolute()),
        config_text=document.text,
        output_dir=output,
        engine=options.engine,  # type: ignore[arg-type]  # one of ENGINES
        trainer=run.trainer if options.engine == EMBEDDED else "",
        kind=kind_with_a_command(run) if options.engine == "trl" else "",
        recover=options.recover,
        resumable=options.engine != "llamafactory" or resumable(run),
        settings=settings_of(run, _seed(run)),
        force=options.force,
        micro_batch_size=run.batch.micro_batch_size,
        gradient_accumulation_steps=run.batch.gradient_accumulation_steps,
        eval_batch_size=run.evaluation.eval_batch_size,
        effective_batch_size=run.batch.effective_batch_size,
        gpus=run.batch.gpus,
        data_parallel=run.batch.data_parallel,
        sequence_len=run.shapes.sequence_len,
        pad_multiple=run.shapes.pad_multiple,
        constant_shapes=run.shapes.constant_shapes,
        packs_anew=run.shapes.sample_packing and options.engine == "axolotl",
        precision=run.precision.compute,
        weights_dtype=run.precision.weights_dtype,
        autocast=run.precision.autocast,
        environment=decide.worker_environment(environment, os.environ),
        seed=_seed(run),
        random_weights=options.random_weights,
        memory_limit_bytes=options.memory_limit_bytes,
        target=target_of(target),
        card=card_of(target.gpu),
        allocator=run.allocator.settings,
        predicted=None if prediction is None else memory_of(prediction),
        guard=GuardThresholds(),
        decisions=tuple(decisions),
    )


def _wanted(run: RunSpec, options: TrainOptions) -> Wanted:
    """Return where to resume: --resume-from, --resume, or what the config says."""
    named = options.resume_from or run.config.get("resume_from_checkpoint")
    by_option = options.resume_from is not None
    if options.engine == "llamafactory" and _resumes(run, options) and not resumable(run):
        stage = run.config.get("stage")
        raise VramwiseError(f"LLaMA-Factory cannot go on from a checkpoint in stage {stage}: begin anew with --fresh")
    if run.sharding.is_zero and _resumes(run, options) and not (by_option or options.resume):
        raise VramwiseError(
            "DeepSpeed unpickles the checkpoints it resumes, which runs what is in them: a config alone does not "
            "decide that; say --resume, or --resume-from with the folder"
        )
    return Wanted(
        named=None if not named or named is True else str(named),
        named_by="--resume-from" if by_option else "resume_from_checkpoint",
        last=_resumes(run, options),
        hosted=options.engine != EMBEDDED,
        force=options.force,
        fresh=options.fresh,
    )


def _resumes(run: RunSpec, options: TrainOptions) -> bool:
    config = run.config
    asked = config.get("auto_resume_from_checkpoints") or config.get("resume_from_checkpoint")
    return options.resume or options.resume_from is not None or bool(asked)


def _seed(run: RunSpec) -> int:
    return int(run.config.get("seed", _DEFAULT_SEED))


def _output_dir(run: RunSpec) -> str:
    return _absolute(run.config.get("output_dir", _DEFAULT_OUTPUT))


def _absolute(folder: object) -> str:
    return str(Path(str(folder)).absolute())
