"""`vramwise report`: predicted against measured memory of a training run."""

from __future__ import annotations

from pathlib import Path

import click

from vramwise.cli.writing import say, say_all
from vramwise.render.train_report import render_train_html, render_train_report
from vramwise.training.parent.measured import read_report
from vramwise.whole_files import write_new


@click.command("report")
@click.argument("output_dir", metavar="OUTPUT_DIR", type=click.Path(path_type=Path))
@click.option("--html", metavar="FILE", help="Write the report as an HTML page, with memory over the steps.")
def command(output_dir: Path, html: str | None) -> None:
    """Compare the predicted and the measured memory of a run.

    OUTPUT_DIR is the output_dir of a `vramwise train` run, or of any run with the memory guard. It works during the
    run, too. Exit code: 0, or 2 if there is nothing to read.
    """
    report = read_report(output_dir)
    say_all(render_train_report(report))
    if html is not None:
        write_new(html, render_train_html(report).encode("utf-8"))
        say(f"wrote {html}", err=True)
