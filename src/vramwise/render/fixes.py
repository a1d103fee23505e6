"""The result of `fix`: each change on a line, each refusal with its reason."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.render.fit_words import answer
from vramwise.render.outward import style
from vramwise.verbs.fix import FixReport


def describe_fix(report: FixReport, *, written: bool = True) -> list[str]:
    """Return a line for each change of a file, made or proposed, and for each refusal."""
    lines = []
    done = style("fixed" if written else "would fix", fg="green", bold=True)
    for found in report.applied:
        assert found.fix is not None
        lines.append(f"{style(report.path, bold=True)} {done} {style(found.rule, bold=True)}: {found.fix.title}")
    for found, reason in report.refused:
        kept = style("not fixed", fg="yellow", bold=True)
        lines.append(f"{style(report.path, bold=True)} {kept} {style(found.rule, bold=True)}: {reason}")
    return [*lines, *_fitted(report, written=written)]


def _fitted(report: FixReport, *, written: bool) -> Iterator[str]:
    """Yield the result of --fit, and the shell commands that cannot be written to the file."""
    if report.fit is None:
        return
    fit = report.fit
    done = style("fitted" if written else "would be changed to fit", fg="green", bold=True)
    if fit.best is None:
        done = style("not fitted", fg="red", bold=True)
    elif not fit.changed:
        done = style("unchanged", fg="green", bold=True)
    yield f"{style(report.path, bold=True)} {done}: {answer(fit)}"
    for command in fit.best.commands if fit.best is not None else ():
        yield f"  before training: {command}"
    for change in fit.best.by_hand if fit.best is not None else ():
        yield f"  not written: {change}"
