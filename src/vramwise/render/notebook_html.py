"""Pages without a timeline: findings, fixes, a diagnosis. They need no script and share the report's styles."""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.diagnosis.evidence import Diagnosis
from vramwise.render.diagnosis_html import advice
from vramwise.render.html import plain_page
from vramwise.render.html.markup import Child, Markup, element, together
from vramwise.render.html.sections import card, findings_list, header
from vramwise.render.outward import unstyle
from vramwise.render.text import summary
from vramwise.verbs.check import FileReport
from vramwise.verbs.fix import FixReport


def reports_page(reports: Sequence[FileReport]) -> str:
    """Return the findings of `check`, file by file."""
    return _page("vramwise check", unstyle(summary(reports)), _state(reports), *map(_report, reports))


def fixes_page(fixes: Sequence[tuple[FixReport, str]]) -> str:
    """Return the result of `fix`: each file with its diff, and what remains."""
    remaining = [report.remaining for report, _ in fixes]
    parts = [part for report, difference in fixes for part in (_fix(report, difference), _report(report.remaining))]
    return _page("vramwise fix", f"remains: {unstyle(summary(remaining, fixing=True))}", _state(remaining), *parts)


def diagnosis_report(diagnosis: Diagnosis) -> str:
    """Return what ended a run, and what to change."""
    rest = [*diagnosis.notes, *diagnosis.next_steps]
    notes = card("notes", "Notes", element("ul", *(element("li", said) for said in rest))) if rest else None
    state = "bad" if diagnosis.failed else "good"
    return _page("vramwise diagnose", diagnosis.sentence, state, advice(diagnosis), notes)


def _state(reports: Sequence[FileReport]) -> str:
    if any(report.error for report in reports):
        return "bad"
    return "open" if any(report.failing for report in reports) else "good"


def _report(report: FileReport) -> Markup:
    said = None
    if report.error is not None:
        said = element("p", str(report.error))
    elif report.foreign is not None:
        said = element("p", f"{report.path}: {report.foreign.what}, left alone")
    return together(element("p", element("code", report.path)), said, findings_list(report.findings))


def _fix(report: FixReport, difference: str) -> Markup | None:
    done = [element("li", found.fix.title) for found in report.applied if found.fix is not None]
    kept = [element("li", f"not fixed: {found.rule}: {why}") for found, why in report.refused]
    if not done and not kept:
        return None
    code = element("pre", element("code", difference), tabindex=0) if difference else None
    return card("changes", f"Changes of {report.path}", element("ul", *done, *kept), code)


def _page(title: str, verdict: str, state: str, *parts: Child) -> str:
    return plain_page(title, together(header(title, verdict, "", "", state), *parts))
