"""The JSON format of `check`, version 1.

A golden file in the tests checks it: fields are added, never changed or removed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from vramwise.render.json_text import json_text
from vramwise.trainers.registry import DEFAULT
from vramwise.types import Edit, Finding, Fix, RunSpec, Stack
from vramwise.verbs.check import FileReport

VERSION = 1


def render_json(reports: Iterable[FileReport], *, indent: int | None = None) -> str:
    """Return all reports as one JSON document. `indent` is for people: it uses Python's slow encoder."""
    return json_text(reports_json(reports), indent=indent)


def reports_json(reports: Iterable[FileReport]) -> dict[str, Any]:
    """Return all reports as plain values."""
    return {"version": VERSION, "files": [file_json(report) for report in reports]}


def file_json(report: FileReport) -> dict[str, Any]:
    """Return the report of one file as plain values."""
    error = report.error
    return {
        "path": report.path,
        "trainer": _trainer(report),
        "foreign": report.foreign and report.foreign.kind,
        "error": error and {"message": error.message, "line": error.line, "column": error.column},
        "findings": [{**finding_json(found), **_cell(report, found)} for found in report.findings],
        "skipped": [{"rule": skipped.rule, "needs": ", ".join(skipped.needs)} for skipped in report.skipped],
        "predicted": report.prediction is not None,
        "not_predicted": report.not_predicted or None,
        "without_figures": list(report.without_figures),
        "resolved": report.run and resolved_json(report.run),
        "stack": report.run and stack_json(report.run.target.stack),
    }


def _trainer(report: FileReport) -> str | None:
    """Return the trainer's name; unreadable files get the default trainer, None means another tool's file."""
    if report.foreign is not None:
        return None
    return DEFAULT if report.run is None else report.run.trainer


def _cell(report: FileReport, found: Finding) -> dict[str, int]:
    """Return the position in a notebook: the cell's number, and the line in it; empty outside notebooks."""
    cell = None if report.document is None else report.document.cell(found.place.line)
    return {} if cell is None else {"cell": cell[0], "cell_line": cell[1]}


def finding_json(found: Finding) -> dict[str, Any]:
    """Return one finding as plain values."""
    place = found.place
    return {
        "rule": found.rule,
        "severity": found.severity.value,
        "message": found.message,
        "key": found.key,
        "line": place.line,
        "column": place.column,
        "end_line": place.end_line,
        "end_column": place.end_column,
        "fix": found.fix and fix_json(found.fix),
    }


def fix_json(fix: Fix) -> dict[str, Any]:
    """Return one fix as plain values."""
    change = fix.change
    return {
        "title": fix.title,
        "safe": fix.safe,
        "effect": change.effect if change else "same" if fix.safe else "changes",
        "why": change and change.why,
        "edits": [_edit(edit) for edit in fix.edits],
    }


def _edit(edit: Edit) -> dict[str, Any]:
    return {"op": edit.op, "key": edit.key, "value": edit.value}


def stack_json(stack: Stack) -> dict[str, dict[str, Any]]:
    """Return the versions, each with its origin. `said`: the run's own; the nearest known one may stand for it."""
    return {
        name: {
            "version": release.version,
            "origin": release.origin.kind,
            "why": release.origin.why,
            "said": release.meant,
            "known": release.known,
        }
        for name, release in stack.releases.items()
    }


def resolved_json(run: RunSpec) -> dict[str, Any]:
    """Return the RunSpec as plain values, with the target it was resolved for."""
    values = dict(run.settings())
    gpu = run.target.gpu
    for name in ("zero", "trained_blocks"):
        values[name] = values[name] and asdict(values[name])
    values["unfollowed"] = [asdict(one) for one in run.unfollowed]
    values["gpu"] = gpu and gpu.name
    values["torch"] = f"{run.target.torch[0]}.{run.target.torch[1]}"
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
