"""Findings as text: the most severe first, each with its place, the source line with a caret, and the fix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vramwise.render.folding import fold, listed
from vramwise.render.outward import style, visible
from vramwise.types import Finding, Severity
from vramwise.variants.versions import versions_line
from vramwise.verbs.check import FileReport

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_MAX_SOURCE = 100


def render_text(report: FileReport, *, width: int | None = None) -> list[str]:
    """Return the lines of one file: each finding, followed by an empty line.

    Empty if there is nothing to report. `width` folds long lines.
    """
    lines = []
    if report.foreign is not None:
        insist = "" if report.foreign.kind == "python" else " (--trainer NAME checks it anyway)"
        words = f"{style(report.path, bold=True)}: {report.foreign.what}, skipped{insist}"
        return fold(words, width)
    if report.error and not report.findings:
        lines += [*fold(_error(report), width), ""]
    if report.run is not None and report.findings and (versions := versions_line(report.run)):
        lines += [*fold(f"{style(_place_name(report), bold=True)}: {versions}", width), ""]
    for found in sorted(report.findings, key=lambda found: (not found.comes_first, -found.severity.rank)):
        lines += [*_finding(report, found, width), ""]
    return lines


def summary(reports: Sequence[FileReport], *, fixing: bool = False) -> str:
    """Return the last line: the number of findings, what can be fixed, what was not checked."""
    foreign = [report for report in reports if report.foreign is not None]
    reports = [report for report in reports if report.foreign is None]
    findings = [found for report in reports for found in report.findings]
    unusable = sum(report.error is not None for report in reports)
    parts = [f"{_counts(findings)} in {_files(len(reports))}"] if findings or unusable < len(reports) else []
    if unusable:
        parts.append(f"{_files(unusable)} unusable")
    if foreign:
        parts.append(
            f"{_files(len(foreign))} skipped: not " + ("a training config" if len(foreign) == 1 else "training configs")
        )
    if not fixing:
        parts.extend(_fixable(findings))
        parts.extend(_predicted(reports))
    skipped = _skipped(reports)
    return "; ".join([*parts, skipped] if skipped else parts)


def _predicted(reports: Sequence[FileReport]) -> Iterator[str]:
    """Yield what was predicted for a single file, and what was not although a card is given."""
    report = reports[0] if len(reports) == 1 else None
    if report is None or report.run is None or report.run.target.gpu is None:
        return
    if report.prediction is None:
        yield "nothing predicted"
        return
    # Late: most checks predict nothing.
    from vramwise.render.doubt_text import in_brief
    from vramwise.render.verdict_text import judgement, needed

    said = judgement(report.prediction, report.prediction.verdict(report.rows_up_to))
    yield f"predicted to reserve {needed(report.prediction)}: {said}"
    if unknown := in_brief(report.prediction):
        yield unknown
    if report.without_figures:
        yield f"the savings from fixing {listed(report.without_figures, 'and')} were not predicted: the run is too long"


def _skipped(reports: Sequence[FileReport]) -> str:
    counted = [[rule.needs for rule in report.skipped] for report in reports]
    count = max((len(each) for each in counted), default=0)
    if not count:
        return ""
    needs = set().union(*(needs for each in counted for needs in each))
    lacks = {
        "gpu": "a named card (--gpu)",
        "memory": "a prediction (--predict)",
        "model": "a known model (`vramwise predict` explains how to name one)",
    }
    rules = f"{count} rule{'s' * (count != 1)}"
    return f"{rules} skipped: they need {' and '.join(lacks[need] for need in sorted(needs))}"


def _counts(findings: Sequence[Finding]) -> str:
    if not findings:
        return style("nothing found", fg="green")
    words = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
    counted = [(severity, sum(found.severity is severity for found in findings)) for severity in words]
    return ", ".join(
        style(f"{count} {words[severity]}{'s' * (count != 1)}", fg=_COLOURS[severity])
        for severity, count in counted
        if count
    )


def _files(count: int) -> str:
    return f"{count} file{'s' * (count != 1)}"


def _fixable(findings: Sequence[Finding]) -> Iterator[str]:
    safe = sum(found.fix is not None and found.fix.safe for found in findings)
    unsafe = sum(found.fix is not None and not found.fix.safe for found in findings)
    if safe:
        yield f"{safe} fixable with `vramwise fix`"
    if unsafe:
        yield f"{unsafe} {'more ' if safe else ''}with --unsafe-fixes"


def _error(report: FileReport) -> str:
    error = report.error
    assert error is not None
    place = "" if error.line is None else f":{error.line}:{error.column or 1}"
    return f"{style(report.path + place, bold=True)} {style('error', fg='red', bold=True)}: {error.message}"


def _place_name(report: FileReport) -> str:
    return report.path if report.document is None else report.document.place_name


def _finding(report: FileReport, found: Finding, width: int | None) -> list[str]:
    line = found.line if found.line is None or report.document is None else report.document.label(found.line)
    at = "" if line is None else f":{line}:{found.place.column}"
    # A path without a line needs its own colon.
    place = style(f"{_place_name(report)}{at or ':'}", bold=True)
    severity = style(found.severity.value, fg=_COLOURS[found.severity], bold=True)
    lines = fold(f"{place} {severity} {style(found.rule, bold=True)}: {found.message}", width)
    lines.extend(_source(report, found))
    if found.fix is not None:
        words = found.fix.effect_words
        unsafe = style(f" ({words}: --unsafe-fixes)", dim=True) if words else ""
        lines += fold(f"  {style('fix', fg='green')}: {found.fix.title}{unsafe}", width)
    return lines


def _source(report: FileReport, found: Finding) -> Iterator[str]:
    """Yield the source line and carets under the relevant part; nothing if the finding has no line."""
    if found.line is None or found.key is None or report.document is None:
        return
    lines = report.document.text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    place = found.place
    if place.line > len(lines) or not lines[place.line - 1].strip():
        return
    line = lines[place.line - 1].replace("\t", " ")
    end = place.end_column if place.end_line == place.line else len(line) + 1
    cell = report.document.cell(place.line)
    number = str(place.line if cell is None else cell[1])
    shown = line[:_MAX_SOURCE] + ("…" if len(line) > _MAX_SOURCE else "")
    before, meant = visible(shown[: place.column - 1]), visible(shown[place.column - 1 : end - 1])
    yield f"  {style(number + ' |', dim=True)} {shown}"
    carets = style("^" * max(1, len(meant)), fg="green")
    yield f"  {' ' * len(number)} {style('|', dim=True)} {' ' * len(before)}{carets}"
