"""`vramwise new`: writes a config that fits, from a model, a card and data."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from vramwise.cli.completion import complete_models
from vramwise.cli.options import TARGET_OPTIONS, target_options, terminal_width
from vramwise.cli.writing import Status, pass_on, say, say_all
from vramwise.errors import VramwiseError
from vramwise.opening.options import NewOptions, Options
from vramwise.render.folding import fold_all
from vramwise.render.json_text import json_text
from vramwise.render.new_text import new_json, render_new
from vramwise.trainers.starting import FORMATS
from vramwise.verbs.new import new, starting_trainers
from vramwise.verbs.starting.plan import New
from vramwise.whole_files import write_new

_COUNT = click.IntRange(min=1)
_METHODS = ("auto", "full", "lora", "qlora")


@click.command("new")
@click.argument("model", metavar="MODEL", shell_complete=complete_models)
@click.option("--data", metavar="FILE|FOLDER", help="Your data: jsonl, json, csv or parquet.")
@target_options
@click.option(
    "--method",
    type=click.Choice(_METHODS),
    default="auto",
    show_default=True,
    help="What to train; auto: the best of full, lora and qlora that fits.",
)
@click.option("--batch", type=_COUNT, default=16, show_default=True, metavar="N", help="Samples in an optimizer step.")
@click.option("--sequence-len", type=_COUNT, metavar="N", help="Tokens in a row (default: 99 % of the samples fit).")
@click.option("--rank", type=_COUNT, default=16, show_default=True, metavar="N", help="Rank of LoRA adapters.")
@click.option("--epochs", type=_COUNT, metavar="N", help="Passes over the data (default: 3 for few samples, else 1).")
@click.option(
    "--data-format", type=click.Choice(tuple(FORMATS)), help="Without --data: the format that your data will have."
)
@click.option(
    "--as",
    "written_as",
    type=click.Choice(["config", "script"]),
    help="A config, or a Python script (TRL and Unsloth; for Unsloth the default).",
)
@click.option("--out", metavar="FILE", help="Write it to FILE, which must not exist (default: standard output).")
@click.option(
    "--online/--offline",
    default=True,
    show_default=True,
    help="Ask the hub for the config.json of a model that is not known here.",
)
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(model: str, out: str | None, written_as: str | None, output_format: str, **asked: Any) -> None:
    """Write a config for MODEL that starts, passes check and is predicted to fit the card.

    The method, batch, kernels and the rest are chosen by the search of vramwise fit. The config goes to standard
    output, the verdict to standard error. The file is yours from then on: check, fix and fit work on it.

    Exit code: 0 written, 1 nothing fits, 2 bad usage or unreadable input.
    """
    options = Options(**{name: asked.pop(name) for name in TARGET_OPTIONS})
    ask = NewOptions(model=model, script=None if written_as is None else written_as == "script", path=out, **asked)
    if out is not None and Path(out).exists():
        raise VramwiseError(f"{out} exists, and new never writes over a file: name another")
    with Status() as status:
        found = new(ask, options, lambda done, of: status.show(f"{done} of about {of} predictions"))
    written = [] if out is None or not found.fits else _written(found, out)
    if output_format == "json":
        say_all(json_text(new_json(found), indent=2).split("\n"))
    else:
        say_all(fold_all(render_new(found), terminal_width()), err=True)
        if found.fits and out is None:
            pass_on(found.text.encode("utf-8"), to_a_log=False)
    for line in written:
        say(line, err=True)
    sys.exit(0 if found.fits and not found.subject.stops else 1)


for _parameter in command.params:
    # added by target_options, where it describes a file to read
    if isinstance(_parameter, click.Option) and _parameter.name == "trainer":
        _parameter.help = f"Whose config to write: {', '.join(starting_trainers())} (default: the first)."


def _written(found: New, out: str) -> list[str]:
    """Write the config and the files that it needs; existing files stay unchanged."""
    write_new(out, found.text.encode("utf-8"))
    lines = [f"wrote {out}"]
    for name, text in found.companions.items():
        if Path(name).exists():
            lines.append(f"{name} exists and is left alone: add the entry that {out} shows")
        else:
            write_new(name, text.encode("utf-8"))
            lines.append(f"wrote {name}")
    return lines
