"""`vramwise check`: checks configs; `--fix` fixes them first."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from vramwise.cli.options import (
    FORMATS,
    all_from_words,
    data_option,
    rule_options,
    source_options,
    target_options,
    terminal_width,
)
from vramwise.cli.writing import say_all, say_prose
from vramwise.opening.options import Options
from vramwise.render.text import render_text, summary
from vramwise.verbs.check import FileReport
from vramwise.verbs.check import check as check_paths


@click.command("check")
@click.argument("paths", nargs=-1, required=True, metavar="CONFIG...")
@target_options
@source_options
@rule_options
@data_option
@click.option("--format", "output_format", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option("--show-resolved", is_flag=True, help="Show every effective setting and where its value comes from.")
@click.option("--fix", "fixes", is_flag=True, help="Apply all safe fixes, then report what remains.")
@click.option("--unsafe-fixes", is_flag=True, help="With --fix: also apply fixes that change the training.")
def command(
    paths: tuple[str, ...],
    output_format: str,
    show_resolved: bool,
    fixes: bool,
    unsafe_fixes: bool,
    **asked: Any,
) -> None:
    """Check configs for GPU memory problems.

    CONFIG is a YAML training config, a Python script or notebook, a shell script that starts training, a folder to
    search for these, or - for stdin. You can also pass a launch command after --.

    Exit code: 0 clean, 1 findings, 2 unreadable input or bad usage.
    """
    options, paths = Options(**asked), all_from_words(paths)
    if fixes:
        from vramwise.cli.fix import fixed  # late: only --fix edits files

        reports = fixed(paths, options, unsafe=unsafe_fixes)
    else:
        reports = check_paths(paths, options)
    if output_format == "text":
        sys.exit(exit_code(_write_text(reports, show_resolved=show_resolved)))
    from vramwise.cli.formats import rendered  # late: for programs, and SARIF needs every rule there is

    done = list(reports)
    say_all(rendered(done, output_format), commands=output_format == "github")
    sys.exit(exit_code(done))


def exit_code(reports: Sequence[FileReport]) -> int:
    """Return 2 if a file could not be used, 1 if something was found, else 0."""
    if any(report.error for report in reports):
        return 2
    return 1 if any(report.failing for report in reports) else 0


def _write_text(reports: Iterator[FileReport], *, show_resolved: bool) -> list[FileReport]:
    done = []
    for report in reports:
        if report.foreign is None:
            say_all(render_text(report, width=terminal_width()))
        if show_resolved and report.run is not None:
            from vramwise.render.resolved import render_resolved  # late: only on request

            say_all([*render_resolved(report.run, report.path), ""])
        done.append(report)
    say_all([*_cards_taken(done), *_models_taken(done), *_data_unread(done)], err=True)
    alone = len(done) == 1 and done[0].foreign is not None
    say_prose(render_text(done[0]) if alone else [summary(done)])
    return done


def _cards_taken(reports: Sequence[FileReport]) -> Iterator[str]:
    """Yield notes about ambiguous card names, once for all files."""
    cards = [report.run.target.gpu for report in reports if report.run is not None]
    for said in dict.fromkeys(card.taken_for for card in cards if card is not None and card.taken_for):
        yield f"note: {said}"


def _models_taken(reports: Sequence[FileReport]) -> Iterator[str]:
    """Yield notes about models that are not known, with the range of the figure; the summary of one file says it."""
    if len(reports) == 1:
        return
    known = [report.prediction for report in reports if report.prediction is not None]
    found = [doubt for prediction in known for doubt in prediction.doubts if doubt.kind == "model"]
    for doubt in dict.fromkeys(found):
        yield f"note: {doubt.text}: the run may need up to {doubt.more:.0%} more or {doubt.less:.0%} less"


def _data_unread(reports: Sequence[FileReport]) -> Iterator[str]:
    """Yield notes about data that is here but was not used in the prediction."""
    for said in dict.fromkeys(said for report in reports for said in report.unread):
        yield f"note: {said}"
