"""SARIF 2.1.0 for code scanning: the rules that reported, all findings, and unreadable files as notifications."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from vramwise import __version__
from vramwise.render.json_text import json_text
from vramwise.render.outward import visible
from vramwise.rules.base import Rule
from vramwise.types import Finding
from vramwise.verbs.check import FileReport

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}


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
        "defaultConfiguration": {"level": _LEVELS[rule.severity.value]},
        "properties": {"tags": [rule.topic]},
    }


def _result(path: str, found: Finding, rules: Sequence[Rule]) -> dict[str, Any]:
    message = found.message if found.fix is None else f"{found.message}. Fix: {found.fix.title}"
    return {
        "ruleId": found.rule,
        **_rule_index(found, rules),
        "level": _LEVELS[found.severity.value],
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
