"""`vramwise fix`: fix configs, changing only the lines that need it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import click

from vramwise.cli.check import exit_code
from vramwise.cli.options import (
    all_from_words,
    data_option,
    refuse_to_write_settings,
    rule_options,
    source_options,
    target_options,
    terminal_width,
)
from vramwise.cli.writing import in_ci, pass_on, say, say_all, say_note
from vramwise.documents.edit import diff
from vramwise.opening.options import Options
from vramwise.render.fixes import describe_fix
from vramwise.render.outward import visible
from vramwise.render.text import render_text, summary
from vramwise.verbs.check import FileReport
from vramwise.verbs.fix import FixReport
from vramwise.verbs.fix import fix as fix_paths


@click.command("fix")
@click.argument("paths", nargs=-1, required=True, metavar="CONFIG...")
@target_options
@source_options
@rule_options
@data_option
@click.option("--diff", "show_diff", is_flag=True, help="Show the changes without writing them.")
@click.option(
    "--unsafe-fixes", is_flag=True, help="Also apply fixes that change the training (numerics, data, method)."
)
@click.option(
    "--fit", "fits", is_flag=True, help="Then change it to the fastest variant that fits; see `vramwise fit`."
)
def command(paths: tuple[str, ...], show_diff: bool, unsafe_fixes: bool, fits: bool, **asked: Any) -> None:
    """Fix configs, changing only the lines that need it.

    Safe fixes do not change the training result; other fixes need --unsafe-fixes. Comments, order and layout are kept.
    With -, the fixed config goes to stdout.

    Exit code: 0 nothing remains, 1 findings remain (--diff: or something would change), 2 unreadable input.
    """
    options, paths = Options(**asked), all_from_words(paths)
    if not show_diff:
        refuse_to_write_settings(options.settings, paths)
    reports = []
    for report in fix_paths(paths, options, unsafe=unsafe_fixes, write=not show_diff, fits=fits):
        _tell(report, show_diff=show_diff)
        reports.append(report)
    _tell_rest(reports, show_diff=show_diff)
    remaining = exit_code([report.remaining for report in reports])
    would_change = show_diff and any(report.changed for report in reports)
    sys.exit(max(remaining, int(would_change)))


def fixed(paths: Sequence[str], options: Options, *, unsafe: bool) -> Iterator[FileReport]:
    """Fix configs for `check --fix`: print what was fixed, and yield what remains."""
    for report in fix_paths(paths, options, unsafe=unsafe):
        say_all(describe_fix(report), err=True)
        say_note(report.note)
        yield report.remaining


def _tell(report: FixReport, *, show_diff: bool) -> None:
    stdin = report.path == "-"
    say_all(describe_fix(report, written=not show_diff), err=stdin or show_diff)
    say_note(report.note)
    if show_diff and report.before and report.after:
        # The lines are the user's own text, but the file's name may come from elsewhere.
        name = visible(report.path)
        text = diff(replace(report.before, path=name), replace(report.after, path=name))
        pass_on(text.encode("utf-8"), to_a_log=in_ci())
    elif stdin and report.after:
        # As a filter, the output is a config, which goes to a file even in CI.
        pass_on(report.after.file_bytes, to_a_log=False)


def _tell_rest(reports: list[FixReport], *, show_diff: bool) -> None:
    to_stderr = show_diff or any(report.path == "-" for report in reports)
    remaining = [report.remaining for report in reports]
    ours = [report for report in remaining if report.foreign is None]
    for report in ours:
        say_all(render_text(report, width=terminal_width()), err=to_stderr)
    if len(remaining) == 1 and not ours:
        say_all(render_text(remaining[0]), err=to_stderr)
        return
    changed = sum(report.changed for report in reports)
    verb = "would change" if show_diff else "changed"
    fixes = sum(len(report.applied) for report in reports)
    done = f"{fixes} fix{'es' * (fixes != 1)}: {changed} file{'s' * (changed != 1)} {verb}"
    say(f"{done}; remains: {summary(remaining, fixing=True)}", err=to_stderr)
