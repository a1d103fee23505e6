"""`vramwise diagnose`: explain a failed run from its log, its config and its memory snapshot."""

from __future__ import annotations

import sys
from typing import Any

import click

from vramwise.cli.options import TARGET_OPTIONS, completed, target_options
from vramwise.cli.writing import say, say_all
from vramwise.diagnosis.reading import Reading, read_all
from vramwise.errors import VramwiseError
from vramwise.opening.options import Options
from vramwise.render.diagnosis_json import render_json
from vramwise.render.diagnosis_text import render_diagnosis
from vramwise.whole_files import write_new


@click.command("diagnose")
@click.argument("log", metavar="[LOG]", required=False)
@click.option(
    "--config", metavar="FILE", help="The run's config. With it, causes and remedies are checked by simulation."
)
@click.option("--snapshot", metavar="FILE", help="A torch memory snapshot of the run (a pickle, optionally gzipped).")
@click.option(
    "--model",
    metavar="ID|PATH",
    shell_complete=completed("complete_models"),
    help="Use this model instead of the config's: a hub id, a folder or a config.json.",
)
@target_options
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--html", metavar="FILE", help="Write the snapshot's memory timeline as an HTML page.")
def command(
    log: str | None,
    config: str | None,
    snapshot: str | None,
    model: str | None,
    output_format: str,
    html: str | None,
    **machine: Any,
) -> None:
    """Explain an out-of-memory or dtype failure: what happened, the evidence, what to change.

    LOG is a file of any size, or - for stdin. You can also pass only a snapshot.

    Exit code: 0 no failure found, 1 a failure (explained or not), 2 bad usage or unreadable input.
    """
    if log is None and snapshot is None:
        raise VramwiseError("expected a log (or - for stdin), or --snapshot FILE")
    if html is not None and snapshot is None:
        raise VramwiseError("--html needs a snapshot: add --snapshot FILE")
    options = Options(**{name: machine[name] for name in TARGET_OPTIONS})
    stream = sys.stdin.buffer if log == "-" else None
    reading = read_all(stream or log, config=config, snapshot=snapshot, options=options, model=model)
    say_all(_rendered(reading, output_format))
    if html is not None:
        _write_page(reading, html)
    sys.exit(1 if reading.diagnosis.failed else 0)


def _rendered(reading: Reading, output_format: str) -> list[str]:
    if output_format == "json":
        return render_json(reading.diagnosis).split("\n")
    return render_diagnosis(reading.diagnosis)


def _write_page(reading: Reading, name: str) -> None:
    # Late: a page is rarely requested.
    from vramwise.diagnosis.drawing import draw
    from vramwise.render.diagnosis_html import diagnosis_page

    page = diagnosis_page(reading.diagnosis, draw(reading)).encode("utf-8", "replace")
    write_new(name, page)
    say(f"wrote {name}", err=True)
