"""`new`: writes a config for a model, a card and data that starts, passes `check` and is predicted to fit."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from vramwise.allocator.variables import EXPANDABLE, allocator_variable
from vramwise.documents.edit import apply_edits
from vramwise.errors import VramwiseError
from vramwise.opening.data.formats import recognise_data
from vramwise.opening.options import NewOptions, Options, Text
from vramwise.opening.subject import Subject, on_target, open_subject
from vramwise.trainers.base import Trainer
from vramwise.trainers.registry import DEFAULT, EMBEDDED, all_trainers, trainer_named
from vramwise.trainers.starting import FORMATS, Format, ScriptWriter, Start, unnamed
from vramwise.trainers.wishes import Wishes
from vramwise.types import Finding
from vramwise.variants.attempt import Attempt
from vramwise.variants.axes import opened
from vramwise.variants.changes.kernels import expandable_segments
from vramwise.variants.lengths import NO_DATA
from vramwise.verbs.check import Policy, check_subject
from vramwise.verbs.fitting.largest import largest_model
from vramwise.verbs.fitting.smallest_card import smallest_card
from vramwise.verbs.starting.plan import METHODS, Better, New, Plan
from vramwise.verbs.starting.trials import FEW, Progress, Trial, expandable, judged_as, soonest, trials
from vramwise.verbs.starting.writing import config_text, of_memory, of_rounding, reasons, with_silenced

AUTO = "auto"


def starting_trainers() -> tuple[str, ...]:
    """Return the names of the trainers that new configs are written for, the default first."""
    return tuple(one.name for one in all_trainers() if one.starter is not None and one.name != EMBEDDED)


def new(ask: NewOptions, options: Options, progress: Progress | None = None) -> New:
    """Return the new config, or the closest result if nothing fits. Raises VramwiseError for invalid requests."""
    trainer = _trainer(options.trainer, script=bool(ask.script))
    options = replace(options, trainer=trainer.name, data=None)
    plan = _plan(ask, trainer, options)
    failed: list[Trial] = []
    for method in _methods(plan):
        found: list[Trial] = []
        for few in _tries(plan):
            found = trials(plan, options, method, few, progress)
            chosen = soonest(found)
            if chosen is None:
                break
            written = _written(plan, options, chosen, found, _better(failed))
            # the search predicts without the card's limit; the written file is predicted on the card
            if written.prediction.verdict().memory == "fits":
                return written
            found = [judged_as(trial, written.prediction) if trial is chosen else trial for trial in found]
        failed += found
    return _nothing_fits(plan, failed)


def _tries(plan: Plan) -> Sequence[bool]:
    """Return whether to search with a few samples: first with a few if there are more, then with all.

    What fits with a few samples may not fit with all of them; what does not fit with a few does not fit with all.
    """
    many = plan.samples is not None and plan.samples > FEW
    return (True, False) if many else (False,)


def _trainer(name: str | None, *, script: bool) -> Trainer:
    if name is not None and name.partition(":")[0] not in starting_trainers():
        raise VramwiseError(f"new cannot write configs for '{name}': choose one of {', '.join(starting_trainers())}")
    found = trainer_named(name or DEFAULT)
    if script and found.script_writer is None:
        scripted = " or ".join(f"--trainer {one.name}" for one in all_trainers() if one.script_writer is not None)
        raise VramwiseError(f"{found.title} is not used with a script: add {scripted}, or leave --as script out")
    return found


def _methods(plan: Plan) -> Sequence[str]:
    """Return the methods to try. Without bf16, full fine-tuning has no good 16-bit option, so `auto` skips it."""
    ask = plan.ask
    if ask.method == AUTO:
        return tuple(METHODS) if plan.gpu.bf16 else tuple(METHODS)[1:]
    if ask.method not in METHODS:
        raise VramwiseError(f"there is no method {ask.method}: choose one of {', '.join((AUTO, *METHODS))}")
    return (ask.method,)


def _plan(ask: NewOptions, trainer: Trainer, options: Options) -> Plan:
    source = unnamed(_format(ask.data_format)) if ask.data is None else recognise_data(ask.data)
    wishes = Wishes(model=ask.model, adapter="lora", rank=ask.rank)
    assert trainer.starter is not None
    starter, writer = trainer.starter(), _writer(ask, trainer)
    first = Start(wishes=wishes, source=source, script=writer is not None)
    subject = open_subject(starter.start(first), options, online=ask.online).with_data()
    if subject.model is None:
        raise VramwiseError(subject.model_missing)
    gpu = subject.target.gpu
    if gpu is None:
        raise VramwiseError(
            "no card is named, and this machine has none: add --gpu, such as --gpu rtx-4090 or --gpu 24GB"
        )
    if ask.sequence_len is not None and ask.sequence_len > subject.model.max_position_embeddings:
        most = subject.model.max_position_embeddings
        raise VramwiseError(f"--sequence-len {ask.sequence_len}: {ask.model} takes at most {most:,} tokens")
    return Plan(
        ask=ask,
        model=subject.model,
        gpu=gpu,
        gpus=subject.run.batch.gpus,
        source=source,
        starter=starter,
        writer=writer,
        data=subject.data,
        fragments=expandable_segments(expandable(subject).run) is not None,
    )


def _writer(ask: NewOptions, trainer: Trainer) -> ScriptWriter | None:
    """Return what writes the script; None if a config is to be written."""
    if trainer.script_writer is None:
        return None
    writer = trainer.script_writer()
    return writer if (writer.SCRIPT_FIRST if ask.script is None else ask.script) else None


def _format(word: str | None) -> Format:
    found = next((one for one in FORMATS if one == (word or "alpaca")), None)
    if found is None:
        raise VramwiseError(f"there is no data format {word}: choose one of {', '.join(FORMATS)}")
    return found


def _written(plan: Plan, options: Options, chosen: Trial, found: Sequence[Trial], better: Better | None) -> New:
    """Return the chosen trial as a text, read again like any other config."""
    fitted = _fixed(chosen.fitted)
    comments = reasons(plan, chosen, fitted, found, better)
    companions = plan.starter.companions(chosen.start)
    launch, settled = _launch(plan, fitted)
    comments = with_silenced(comments, settled, "the command sets the allocator")
    comments = with_silenced(comments, _passed_by(plan, fitted), "its fix is slower with this data")
    requirements = plan.starter.requirements(chosen.start)
    head = _head(plan, chosen, launch, companions, requirements)

    def written(comments: Mapping[str, str]) -> Subject:
        return _read_again(plan, options, chosen, fitted, comments, head)

    subject = written(comments)
    findings = check_subject(subject, Policy(predicts=True)).findings
    memory = of_memory(subject.trainer, findings)
    silenced = with_silenced(comments, memory, "it fits with it")
    silenced = with_silenced(
        silenced, [one for one in of_rounding(findings) if one not in memory], "its fix is no faster"
    )
    if silenced != comments:
        subject = written(silenced)
        findings = check_subject(subject, Policy(predicts=True)).findings
    speed = subject.speed()
    return New(
        plan=plan,
        method=chosen.method,
        subject=subject,
        prediction=subject.prediction(),
        text=subject.document.text,
        script=plan.script,
        packed=chosen.packed,
        speed=speed,
        duration=None if speed is None else subject.duration(speed),
        launch=launch,
        companions=companions,
        requirements=requirements,
        better=better,
        findings=tuple(findings),
    )


def _read_again(
    plan: Plan,
    options: Options,
    chosen: Trial,
    fitted: Subject,
    comments: Mapping[str, str],
    head: Sequence[str],
) -> Subject:
    """Write the config of a subject as a text with these comments, and open that text."""
    values, head = fitted.document.values, _with_first(head, comments)
    if plan.writer is not None:
        text = plan.writer.script(values, chosen.start, comments, head)
        options = replace(options, trainer=None)  # the trainer of a script is recognised from its calls
    else:
        text = config_text(values, plan.starter.GROUPS, comments, head)
    return open_subject(Text(text), options, online=plan.ask.online).knowing(fitted)


def _with_first(head: Sequence[str], comments: Mapping[str, str]) -> list[str]:
    """Return the header followed by the comment about the whole file."""
    return [*head, *([comments[""]] if comments.get("") else [])]


def _fixed(subject: Subject) -> Subject:
    """Return the subject with the safe fixes of `check` applied, which do not change the training."""
    for found in check_subject(subject, Policy(predicts=True, figures=False)).findings:
        if found.fix is not None and found.fix.safe:
            with suppress(VramwiseError):
                subject = subject.with_document(apply_edits(subject.document, found.fix.edits))
    return subject


def _launch(plan: Plan, fitted: Subject) -> tuple[str, Sequence[Finding]]:
    """Return the launch command, and the findings that a variable set by that command settles.

    Some trainers have no key for the allocator. What fits without the variable also fits with it.
    """
    path = shlex.quote(plan.ask.path or ("train.py" if plan.script else "config.yml"))
    if plan.writer is not None:
        command = plan.writer.launch_script(fitted.run, path)
    else:
        command = plan.starter.launch(fitted.run, path)
    if expandable_segments(fitted.run) is None:
        return command, ()
    target = replace(fitted.target, alloc_conf=EXPANDABLE)
    other = on_target(fitted.document, fitted.trainer, target)
    without, with_it = (check_subject(one, Policy()).findings for one in (fitted, other))
    left = {found.rule for found in with_it}
    return f"{export_words(fitted)} {command}", [found for found in without if found.rule not in left]


def export_words(fitted: Subject) -> str:
    """Return the allocator variable as a shell sets it for one command."""
    return f"{allocator_variable(fitted.target.torch)}={EXPANDABLE}"


def _passed_by(plan: Plan, fitted: Subject) -> Sequence[Finding]:
    """Return findings of a check without the data, whose remedy the search could have chosen but did not.

    Without expandable segments, such a check assumes lengths that leave gaps.
    """
    if not plan.fragments or plan.lengths is None:
        return ()
    return of_rounding(check_subject(fitted.changed(data=NO_DATA), Policy(predicts=True)).findings)


def _head(
    plan: Plan, chosen: Trial, launch: str, companions: Mapping[str, str], requirements: Sequence[str]
) -> list[str]:
    what = plan.described(chosen.method)
    lines = [f"{what} on {plan.cards}, made by vramwise new.", f"Train: {launch}"]
    lines += [f"Needs: {line}" for line in requirements]
    for name, text in companions.items():
        lines += [f"It needs {name} with this entry:", *(f"  {line}" for line in text.splitlines())]
    return lines


def _better(failed: Sequence[Trial]) -> Better | None:
    """Return the last method that was tried and did not fit, which is the next better one; None if there is none."""
    if not failed:
        return None
    return _misses([trial for trial in failed if trial.method == failed[-1].method])


def _misses(failed: Sequence[Trial]) -> Better:
    """Return by how much the closest of some trials misses."""
    short, trial = min(((_short_bytes(trial.best), place), trial) for place, trial in enumerate(failed))
    prediction = trial.best.prediction
    needed = 0 if prediction is None else prediction.decisive.highest_reserved_bytes
    return Better(method=trial.method, needs_bytes=needed, short_bytes=short[0])


def _short_bytes(candidate: Attempt) -> int:
    """Return how much memory a candidate lacks, including its margin."""
    return max(0, -(candidate.spare_bytes or 0))


def _nothing_fits(plan: Plan, failed: Sequence[Trial]) -> New:
    closest = min(failed, key=lambda trial: _short_bytes(trial.best))
    missing = _misses([closest])
    short = missing.short_bytes > 0  # otherwise it is refused
    return New(
        plan=plan,
        method=closest.method,
        subject=closest.fitted,
        prediction=closest.best.prediction or closest.subject.prediction(),
        packed=closest.packed,
        closest=replace(missing, card=smallest_card(closest.searched.apart()) if short else None),
        smaller_model=_smaller_model(closest.subject.apart()) if short else "",
        proof_bytes=min(trial.proof_bytes for trial in failed),
        tries=sum({id(trial.subject.effort): trial.subject.effort.predictions for trial in failed}.values()),
    )


def _smaller_model(subject: Subject) -> str:
    """Return the largest model of the family that fits instead; "" if none is known."""
    with suppress(VramwiseError):
        return largest_model(subject, opened())
    return ""
