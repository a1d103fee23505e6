"""`vramwise predict`: what a run will allocate and reserve, without a GPU.

Without a file, options describe the run, and a config is made from them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import click

from vramwise.cli.options import (
    SOURCE_OPTIONS,
    TARGET_OPTIONS,
    Decorated,
    command_again,
    data_option,
    from_words,
    model_options,
    source_options,
    target_options,
)
from vramwise.cli.writing import say, say_all, say_prose
from vramwise.errors import VramwiseError
from vramwise.opening.files import looks_like_a_model
from vramwise.opening.options import Options, PredictOptions
from vramwise.opening.sources import TEXT, Source
from vramwise.opening.subject import Subject
from vramwise.render.json_text import json_text
from vramwise.render.prediction_json import prediction_json, what_if_json
from vramwise.render.prediction_text import render_cards, render_change, render_prediction, render_scenarios
from vramwise.trainers.compose import METHODS, composed
from vramwise.trainers.registry import TRAINER_NAMES
from vramwise.trainers.wishes import Wishes
from vramwise.units import parse_size
from vramwise.variants.prediction import profile_of
from vramwise.verbs.check import Policy, check_subject
from vramwise.verbs.predict import Answer, OnCard, WhatIf, on_cards, opened, predict, scenarios
from vramwise.verbs.predict import what_if as what_changes
from vramwise.whole_files import write_new

_COUNT = click.IntRange(min=1)
_WISH_OPTIONS = (
    click.option(
        "--adapter", type=click.Choice(METHODS), help="Without CONFIG: training method (none = full fine-tune)."
    ),
    click.option("--rank", type=_COUNT, metavar="N", help="Without CONFIG: LoRA rank."),
    click.option("--sequence-len", type=_COUNT, metavar="N", help="Without CONFIG: tokens per row."),
    click.option("--micro-batch", type=_COUNT, metavar="N", help="Without CONFIG: rows per micro-batch."),
    click.option("--accumulation", type=_COUNT, metavar="N", help="Without CONFIG: micro-batches per optimizer step."),
    click.option("--optimizer", metavar="NAME", help="Without CONFIG: optimizer."),
    click.option("--checkpointing/--no-checkpointing", default=None, help="Without CONFIG: gradient checkpointing."),
    click.option("--attention", metavar="NAME", help="Without CONFIG: attention: sdpa, flash_attention_2, eager…"),
    click.option("--packing/--no-packing", default=None, help="Without CONFIG: pack several samples into a row."),
    click.option(
        "--fused-loss", is_flag=True, default=None, help="Without CONFIG: fused loss that never holds all logits."
    ),
    click.option(
        "--eval-batch", type=_COUNT, metavar="N", help="Without CONFIG: evaluate, with this many rows per batch."
    ),
)
_WISHES = tuple(field.name for field in fields(Wishes) if field.name != "model")


def wish_options(command: Decorated) -> Decorated:
    """Add --adapter, --rank, --sequence-len and the other options for a run without a file."""
    for option in reversed(_WISH_OPTIONS):
        command = option(command)
    return command


@click.command("predict")
@click.argument("words", metavar="[CONFIG]", nargs=-1)
@target_options
@source_options
@wish_options
@click.option(
    "--engine",
    type=click.Choice(TRAINER_NAMES),
    help="Training engine; transformers is vramwise's embedded engine (default: the config's trainer).",
)
@model_options
@click.option("--steps", type=click.IntRange(min=1, max=10_000), metavar="N", help="Optimizer steps to simulate.")
@data_option
@click.option(
    "--lengths",
    metavar="FILE",
    help="Sample lengths in training order, one per line (pairs as [chosen, rejected]), or JSON lines.",
)
@click.option("--eval-lengths", metavar="FILE", help="Sample lengths for evaluation.")
@click.option("--memory-limit", metavar="SIZE", help="Limit what the allocator may reserve, e.g. 29000MiB.")
@click.option(
    "--what-if",
    metavar="KEY=VALUE|PACKAGE==VERSION",
    multiple=True,
    help=(
        "Show the effect of a change or an upgrade. Repeatable: different keys combine, values of one key are compared."
    ),
)
@click.option("--verbose", is_flag=True, help="Also show every phase, all assumptions, versions and measured runs.")
@click.option("--cards", is_flag=True, help="Show which cards the run fits.")
@click.option("--html", metavar="FILE", help="Write an HTML report with the memory timeline.")
@click.option("--snapshot", metavar="FILE", help="Write the predicted run as a torch memory snapshot.")
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    words: tuple[str, ...],
    what_if: tuple[str, ...],
    verbose: bool,
    cards: bool,
    html: str | None,
    snapshot: str | None,
    output_format: str,
    memory_limit: str | None,
    **asked: Any,
) -> None:
    """Predict what a run will allocate and reserve, without a GPU.

    CONFIG is a YAML config, a Python script, a notebook, or a shell script that starts training. You can also pass a
    launch command after --: vramwise predict --gpu h100 -- trl sft --model_name_or_path Qwen/Qwen3-4B --use_peft

    Without CONFIG, name the model (vramwise predict meta-llama/Llama-3.1-8B) and describe the run with --adapter,
    --sequence-len and so on. --trainer sets the trainer.

    Exit code: 0 fits (or no card named), 1 does not fit, 2 bad usage or unreadable input.
    """
    path = from_words(words)
    machine = {name: asked.pop(name) for name in (*TARGET_OPTIONS, *SOURCE_OPTIONS)}
    options = Options(**machine, data=asked.pop("data"))
    wished = taken(asked)
    ask = PredictOptions(**asked, limit_bytes=None if memory_limit is None else parse_size(memory_limit))
    tried = scenarios(what_if)
    if path is not None and ask.model is None and looks_like_a_model(path):
        path, ask = None, replace(ask, model=path)
    source: Source
    if path is None:
        trainer, source = composed_run(ask.model, wished, options.trainer)
        again = _command(as_words(wished), options, ask, memory_limit)
        options = replace(options, trainer=trainer)
    else:
        refuse_with_a_file(wished)
        source, again = path, _fit_command(path, options, ask, memory_limit)
    subject = opened(source, options, ask)
    found = predict(subject, ask, again)
    prediction = found.prediction
    changed = [what_changes(subject, options, ask, changes) for changes in tried]
    by_card = on_cards(subject, prediction) if cards else []
    _write_files(subject, found, html, snapshot)
    if output_format == "json":
        _write_json(found, changed, by_card)
    else:
        _write_text(found, changed, by_card, verbose=verbose)
        if path is None:
            say("", "As a config:", *(f"  {line}" for line in subject.document.text.splitlines()), err=True)
    sys.exit(1 if prediction.fits is False else 0)


def _fit_command(path: str, options: Options, ask: PredictOptions, memory_limit: str | None) -> str:
    """Return the command that fits the config to the same machine, with the same versions and data."""
    return command_again("fit", [path], options, {"model": ask.model, "memory_limit": memory_limit}, online=ask.online)


def _command(run: Sequence[str], options: Options, ask: PredictOptions, memory_limit: str | None) -> str:
    """Return the command without its changes and outputs, for trying a remedy."""
    more = {name: getattr(ask, name) for name in ("engine", "model", "steps", "lengths", "eval_lengths")}
    return command_again("predict", run, options, {**more, "memory_limit": memory_limit}, online=ask.online)


def _write_text(found: Answer, changed: Sequence[WhatIf], by_card: Sequence[OnCard], *, verbose: bool) -> None:
    say_prose(render_prediction(found.prediction, found, verbose=verbose))
    if len(changed) == 1:
        say_prose(["", *render_change(found, changed[0])])
    elif changed:
        say_prose(["", *render_scenarios(found, changed)])
    if by_card:
        say_prose(["", *render_cards(by_card)])


def _write_json(found: Answer, changed: Sequence[WhatIf], by_card: Sequence[OnCard]) -> None:
    document = prediction_json(found.prediction, found)
    if changed:
        document["what_if"] = what_if_json(changed[-1])
        document["what_ifs"] = [what_if_json(one) for one in changed]
    if by_card:
        document["cards"] = [
            {"gpu": name, "fits": on.fits, "retries": on.report.retries, "kind": verdict.kind}
            for name, on, verdict in by_card
        ]
    say_all(json_text(document, indent=2).split("\n"))


def _write_files(subject: Subject, found: Answer, html: str | None, snapshot: str | None) -> None:
    prediction = found.prediction
    if html is not None:
        from vramwise.render.prediction_html import prediction_page  # late: few ask for a page

        findings = check_subject(subject, Policy(predicts=True)).findings
        name = prediction.model.name if subject.document.path == TEXT else subject.document.path
        page = prediction_page(prediction, profile_of(prediction), name, findings, found)
        _write(html, page.encode("utf-8"))
    if snapshot is not None:
        from vramwise.api import snapshot_bytes  # late: few ask for a snapshot

        _write(snapshot, snapshot_bytes(found))


def _write(name: str, data: bytes) -> None:
    write_new(name, data)
    say(f"wrote {name}", err=True)


def taken(asked: dict[str, Any]) -> dict[str, Any]:
    """Remove the run options from `asked` and return those that were given."""
    found = {name: asked.pop(name) for name in _WISHES}
    return {name: value for name, value in found.items() if value is not None}


def refuse_with_a_file(wished: Mapping[str, Any]) -> None:
    """Raise VramwiseError if run options are combined with a file."""
    if wished:
        name = _word(next(iter(wished)))
        raise VramwiseError(f"{name} works only without CONFIG: set it in the file, or try it with --what-if")


def composed_run(model: str | None, wished: Mapping[str, Any], trainer: str | None) -> tuple[str, Mapping[str, Any]]:
    """Return the trainer's name and the config values for these options; raises VramwiseError without a model."""
    if not model:
        raise VramwiseError("expected a config or a model, e.g. vramwise predict --model meta-llama/Llama-3.2-1B")
    return composed(model, wished, trainer)


def as_words(wished: Mapping[str, Any]) -> list[str]:
    """Return the options as command-line words."""
    words = []
    for name, value in wished.items():
        if value is False:
            words.append(_word(name).replace("--", "--no-"))
        else:
            words += [_word(name)] if value is True else [_word(name), str(value)]
    return words


def _word(name: str) -> str:
    return f"--{name.replace('_', '-')}"
