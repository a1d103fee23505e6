"""`vramwise fit`: the fastest variant of a config that fits a card, as edits of the file."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import click

from vramwise.cli.options import (
    SOURCE_OPTIONS,
    TARGET_OPTIONS,
    command_again,
    completed,
    data_option,
    from_words,
    model_options,
    refuse_to_write_settings,
    source_options,
    target_options,
    terminal_width,
)
from vramwise.cli.writing import Status, pass_on, say, say_all, say_note
from vramwise.errors import VramwiseError
from vramwise.opening.files import STDIN
from vramwise.opening.options import FitOptions, Options
from vramwise.opening.sources import started
from vramwise.render.fit_json import fit_json
from vramwise.render.fit_text import render_fit
from vramwise.render.json_text import json_text
from vramwise.units import parse_size
from vramwise.verbs.fit import FitReport, fit_source
from vramwise.whole_files import refuse_unwritable, write_atomic, write_new


@click.command("fit")
@click.argument("words", metavar="CONFIG", nargs=-1, required=True)
@target_options
@source_options
@click.option(
    "--allow",
    metavar="WORD",
    multiple=True,
    shell_complete=completed("complete_allowed"),
    help="Also try a change that affects training: lora, qlora, 8bit-optimizer, shorter-sequences… Repeatable.",
)
@click.option("--keep", metavar="KEY", multiple=True, help="Do not change this config key. Repeatable.")
@click.option(
    "--margin", metavar="SIZE", help="Memory to keep free, e.g. 1GiB (default: the expected error of the prediction)."
)
@click.option(
    "--max",
    "maximise",
    metavar="KEY",
    help="Find the largest micro_batch_size, sequence_len, lora_r or model that fits. Pin other settings with --keep.",
)
@click.option("--memory-limit", metavar="SIZE", help="Limit what the allocator may reserve, e.g. 29000MiB.")
@data_option
@model_options
@click.option("--write", is_flag=True, help="Write the result to CONFIG, keeping comments and layout.")
@click.option("--out", metavar="FILE", help="Write the result to another file.")
@click.option("--html", metavar="FILE", help="Write an HTML page that plots memory against speed.")
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    words: tuple[str, ...],
    margin: str | None,
    memory_limit: str | None,
    write: bool,
    out: str | None,
    html: str | None,
    output_format: str,
    **asked: Any,
) -> None:
    """Find the fastest variant of a config that fits a card, and show or write the changes.

    By default the training result stays the same: effective batch, sequence length, method and precision. Use --allow
    to permit more. With -, the config is read from stdin, and --write writes to stdout.

    Errors that would stop the run are fixed first where possible. These fixes are part of the result.

    Exit code: 0 something fits (or the file is already the best), 1 nothing fits or will start, 2 bad usage or
    unreadable input.
    """
    path = from_words(words) or ""
    if write:
        refuse_to_write_settings(asked["settings"], [path])
    if write and out is not None:
        raise VramwiseError(f"--write changes {path}, --out writes {out}: use only one")
    options = Options(**{name: asked.pop(name) for name in (*TARGET_OPTIONS, *SOURCE_OPTIONS)}, data=asked.pop("data"))
    target = _file_to_write(path, options) if write else out
    if out is not None and out != STDIN:
        refuse_unwritable(out)
    sizes = [None if size is None else parse_size(size) for size in (margin, memory_limit)]
    ask = FitOptions(**asked, margin_bytes=sizes[0], limit_bytes=sizes[1])
    with Status() as status:
        report = fit_source(path, options, ask, lambda done, of: status.show(f"{done} of about {of} predictions"))
    again = {"allow": ask.allow, "keep": ask.keep, "margin": margin, "max": ask.maximise}
    again |= {"memory_limit": memory_limit, "model": ask.model}
    line = command_again("fit", path, options, again, online=ask.online)
    report = replace(report, command=line, written=_write_config(report, target))
    _write_page(report, html)
    _tell(report, output_format, aside=report.written == STDIN)
    sys.exit(1 if report.fit.best is None or report.fit.stops else 0)


def _file_to_write(path: str, options: Options) -> str:
    """Return the file that a source keeps its config in; raises a VramwiseError if it cannot be written.

    A launch line or shell script names it.
    """
    source, options = started(path, options)
    if not isinstance(source, str):
        raise VramwiseError("this command names no config that could be written: use --out FILE")
    if options.settings and not source.endswith((".py", ".ipynb")):
        raise VramwiseError(f"the launch line changes values of {source}: write them into it, then run again")
    if source != STDIN:
        refuse_unwritable(source)
    return source


def _tell(report: FitReport, output_format: str, *, aside: bool) -> None:
    """Print the answer. `aside`: to stderr, because the config itself goes to stdout."""
    if output_format == "json":
        say_all(json_text(fit_json(report), indent=2).split("\n"), err=aside)
    else:
        say_all(render_fit(report, width=terminal_width()), err=aside)


def _write_config(report: FitReport, target: str | None) -> str:
    """Write the answer if there is one and it was requested; return the name of the written file."""
    after = report.fit.best.document if report.fit.best is not None else None
    if target is None or after is None:
        return ""
    if report.fit.best is not None and report.fit.best.by_hand:
        raise VramwiseError(f"{report.document.path} was not changed: {'; '.join(report.fit.best.by_hand)}")
    before = report.document
    if target == STDIN:
        pass_on(after.file_bytes, to_a_log=False)
    elif target != before.path:
        write_new(target, after.file_bytes)
    elif after.text != before.text:
        say_note(write_atomic(target, after.file_bytes, expected=before.file_bytes))
    else:
        return ""
    return target


def _write_page(report: FitReport, html: str | None) -> None:
    if html is not None:
        from vramwise.render.fit_html import fit_page  # late: few ask for a page

        write_new(html, fit_page(report).encode("utf-8"))
        say(f"wrote {html}", err=True)
