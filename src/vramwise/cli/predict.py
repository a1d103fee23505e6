"""`vramwise predict`: what a run will allocate and reserve, without a GPU."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from vramwise.cli.again import command_again
from vramwise.cli.options import (
    SOURCE_OPTIONS,
    TARGET_OPTIONS,
    data_option,
    from_words,
    model_options,
    source_options,
    target_options,
)
from vramwise.cli.wishes import as_words, composed_run, refuse_with_a_file, taken, wish_options
from vramwise.cli.writing import say, say_all, say_prose
from vramwise.files import looks_like_a_model
from vramwise.options import Options, PredictOptions
from vramwise.render.json_text import json_text
from vramwise.render.prediction_json import prediction_json, what_if_json
from vramwise.render.prediction_text import render_cards, render_prediction
from vramwise.render.what_if_text import render_change, render_scenarios
from vramwise.sources import TEXT, Source
from vramwise.subject import Subject
from vramwise.trainers.registry import TRAINER_NAMES
from vramwise.units import parse_size
from vramwise.variants.prediction import profile_of
from vramwise.verbs.check import Policy, check_subject
from vramwise.verbs.predict import Answer, OnCard, WhatIf, on_cards, opened, predict, scenarios
from vramwise.verbs.predict import what_if as what_changes
from vramwise.whole_files import write_new


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
