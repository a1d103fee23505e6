"""GitHub Actions annotations: one workflow command per finding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vramwise.types import Finding
from vramwise.verbs.check import FileReport

_LEVELS = {"error": "error", "warning": "warning", "info": "notice"}


def render_github(reports: Iterable[FileReport]) -> list[str]:
    """Return all findings and unreadable files as annotations, one line each."""
    return [line for report in reports for line in _lines(report)]


def _lines(report: FileReport) -> Iterator[str]:
    if report.error and not report.findings:
        place = {"line": report.error.line or 1, "col": report.error.column or 1}
        yield _command("error", report.path, place, "unreadable config", report.error.message)
    for found in report.findings:
        yield _annotation(report.path, found)


def _annotation(path: str, found: Finding) -> str:
    place = {"line": found.place.line, "col": found.place.column}
    if found.place.end_line == found.place.line:  # GitHub wants columns only within one line
        place |= {"endLine": found.place.end_line, "endColumn": found.place.end_column}
    message = found.message if found.fix is None else f"{found.message}\nfix: {found.fix.title}"
    return _command(_LEVELS[found.severity.value], path, place, found.rule, message)


def _command(level: str, path: str, place: dict[str, int], title: str, message: str) -> str:
    words = {"file": path, **place, "title": f"vramwise {title}"}
    properties = ",".join(f"{name}={_escape_property(str(value))}" for name, value in words.items())
    return f"::{level} {properties}::{_escape(message)}"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")
