"""`vramwise fix`: mend configs, only the lines that must change."""

from __future__ import annotations

import sys
from typing import Any

import click

from vramwise.cli.check import exit_code
from vramwise.cli.options import rule_options, target_options, terminal_width
from vramwise.judging import FixReport
from vramwise.judging import fix as fix_paths
from vramwise.subject import Options


@click.command("fix")
@click.argument("paths", nargs=-1, required=True, metavar="CONFIG...")
@target_options
@rule_options
@click.option("--diff", "show_diff", is_flag=True, help="Show the changes, write nothing.")
@click.option("--unsafe-fixes", is_flag=True, help="Also fixes that change the training (numerics, data, method).")
def command(paths: tuple[str, ...], show_diff: bool, unsafe_fixes: bool, **asked: Any) -> None:
    """Mend configs: only the lines that must change.

    A fix is safe when training gives the same result; others need --unsafe-fixes. Comments, order and layout stay.
    With - the mended config goes to standard output.

    Exit code: 0 nothing remains, 1 findings remain (--diff: or something would change), 2 unreadable input.
    """
    options = Options(**asked)
    reports = []
    for report in fix_paths(paths, options, unsafe=unsafe_fixes, write=not show_diff):
        _tell(report, show_diff=show_diff)
        reports.append(report)
    _tell_rest(reports, show_diff=show_diff)
    remaining = exit_code([report.remaining for report in reports])
    would_change = show_diff and any(report.changed for report in reports)
    sys.exit(max(remaining, int(would_change)))


def _tell(report: FixReport, *, show_diff: bool) -> None:
    from vramwise.documents.edit import diff
    from vramwise.render.fixes import describe_fix

    stdin = report.path == "-"
    text = describe_fix(report, written=not show_diff)
    if text:
        click.echo(text, err=stdin or show_diff)
    if show_diff and report.before and report.after:
        click.echo(diff(report.before, report.after).encode("utf-8"), nl=False)
    elif stdin and report.after:
        # Bytes: a config is UTF-8 and keeps its line ends, whatever the terminal's encoding.
        click.echo(report.after.text.encode("utf-8"), nl=False)


def _tell_rest(reports: list[FixReport], *, show_diff: bool) -> None:
    from vramwise.render.text import render_text, summary

    to_stderr = show_diff or any(report.path == "-" for report in reports)
    remaining = [report.remaining for report in reports]
    for report in remaining:
        text = render_text(report, width=terminal_width())
        if text:
            click.echo(text + "\n", err=to_stderr)
    changed = sum(report.changed for report in reports)
    verb = "would change" if show_diff else "changed"
    fixes = sum(len(report.applied) for report in reports)
    done = f"{fixes} fix{'es' * (fixes != 1)}: {changed} file{'s' * (changed != 1)} {verb}"
    click.echo(f"{done}; remains: {summary(remaining, fixing=True)}", err=to_stderr)
