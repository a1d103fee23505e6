"""Findings for CI: GitHub Actions annotations, and SARIF 2.1.0 for code scanning.

An annotation is one workflow command per finding. SARIF has the rules that reported, all findings, and unreadable files
as notifications.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from vramwise import __version__
from vramwise.render.json_text import json_text
from vramwise.render.outward import visible
from vramwise.rules.base import Rule
from vramwise.types import Finding
from vramwise.verbs.check import FileReport

_GITHUB_LEVELS = {"error": "error", "warning": "warning", "info": "notice"}
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_SARIF_LEVELS = {"error": "error", "warning": "warning", "info": "note"}


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
    return _command(_GITHUB_LEVELS[found.severity.value], path, place, found.rule, message)


def _command(level: str, path: str, place: dict[str, int], title: str, message: str) -> str:
    words = {"file": path, **place, "title": f"vramwise {title}"}
    properties = ",".join(f"{name}={_escape_property(str(value))}" for name, value in words.items())
    return f"::{level} {properties}::{_escape(message)}"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")


def render_sarif(reports: Iterable[FileReport], known: Sequence[Rule]) -> str:
    """Return all reports as one SARIF run. `known`: all rules; only those that reported are described."""
    reports = list(reports)
    used = {found.rule for report in reports for found in report.findings}
    rules = [rule for rule in known if rule.id in used]
    run = {
        "tool": {"driver": {"name": "vramwise", "version": __version__, "rules": [_rule(rule) for rule in rules]}},
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(reports)],
        "results": [_result(report.path, found, rules) for report in reports for found in report.findings],
    }
    return json_text({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.documentation},
        "help": {"text": f"{rule.documentation}\n\nMore: vramwise explain {rule.id}"},
        "defaultConfiguration": {"level": _SARIF_LEVELS[rule.severity.value]},
        "properties": {"tags": [rule.topic]},
    }


def _result(path: str, found: Finding, rules: Sequence[Rule]) -> dict[str, Any]:
    message = found.message if found.fix is None else f"{found.message}. Fix: {found.fix.title}"
    return {
        "ruleId": found.rule,
        **_rule_index(found, rules),
        "level": _SARIF_LEVELS[found.severity.value],
        "message": {"text": visible(message)},
        "locations": [
            _location(path, found.place.line, found.place.column, found.place.end_line, found.place.end_column)
        ],
    }


def _rule_index(found: Finding, rules: Sequence[Rule]) -> dict[str, int]:
    """Return the index of the rule's description; empty for a notice that is not a rule (internal-error)."""
    ids = [rule.id for rule in rules]
    return {"ruleIndex": ids.index(found.rule)} if found.rule in ids else {}


def _location(path: str, line: int, column: int, end_line: int, end_column: int) -> dict[str, Any]:
    region = {"startLine": line, "startColumn": column, "endLine": end_line, "endColumn": end_column}
    return {"physicalLocation": {"artifactLocation": {"uri": _uri(path)}, "region": region}}


def _uri(path: str) -> str:
    if path == "-":
        return "stdin"
    # A file name need not be UTF-8: then its bytes are quoted. Other text is made visible.
    name = PurePath(path).as_posix()
    return quote(name.encode("utf-8", "surrogateescape") if _is_a_name(name) else visible(name))


def _is_a_name(text: str) -> bool:
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _invocation(reports: Sequence[FileReport]) -> dict[str, Any]:
    unreadable = [report for report in reports if report.error and not report.findings]
    notes = []
    for report in unreadable:
        error = report.error
        line, column = (error.line or 1, error.column or 1) if error else (1, 1)
        message = {"text": visible(error.message) if error else ""}
        location = _location(report.path, line, column, line, column)
        notes.append({"level": "error", "message": message, "locations": [location]})
    return {"executionSuccessful": not unreadable, "toolExecutionNotifications": notes}
