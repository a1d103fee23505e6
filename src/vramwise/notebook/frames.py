"""Display results in notebooks, in a frame: the pages of `--html`, and simpler ones for results without a timeline.

The frame isolates the page's styles and scripts from the notebook; only the page's own script runs in it.

Pages without a timeline (findings, fixes, a diagnosis) need no script and share the report's styles.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from vramwise.diagnosis.evidence import Diagnosis
from vramwise.documents.edit import diff
from vramwise.render.diagnosis_html import advice
from vramwise.render.fit_html import fit_page
from vramwise.render.html import plain_page
from vramwise.render.html.markup import Child, Markup, element, together
from vramwise.render.html.sections import card, findings_list, header
from vramwise.render.outward import unstyle
from vramwise.render.prediction_html import prediction_page
from vramwise.render.text import summary
from vramwise.variants.prediction import profile_of
from vramwise.verbs.check import FileReport
from vramwise.verbs.fit import FitReport
from vramwise.verbs.fix import FixReport
from vramwise.verbs.predict import Answer


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


_TALL, _LOW = 900, 420


def shown(result: Any) -> str | None:
    """Return the HTML frame for a result of a verb, or None if there is nothing to show."""
    results = result if isinstance(result, list) else [result]
    if len(results) == 1 and isinstance(results[0], Answer):
        return _answer(results[0])
    if results and all(isinstance(one, FileReport) for one in results):
        return _frame(reports_page(results), _LOW)
    if results and all(isinstance(one, FixReport) for one in results):
        return _frame(fixes_page([(one, _diff(one)) for one in results]), _LOW)
    if len(results) == 1 and isinstance(results[0], FitReport):
        return _frame(fit_page(results[0]), _TALL)
    if len(results) == 1 and isinstance(results[0], Diagnosis):
        return _frame(diagnosis_report(results[0]), _LOW)
    return None


def _answer(answer: Answer) -> str | None:
    prediction = answer.prediction
    if not prediction.short_timeline.events:
        return None
    page = prediction_page(prediction, profile_of(prediction), prediction.model.name, (), answer)
    return _frame(page, _TALL)


def _diff(report: Any) -> str:
    return diff(report.before, report.after) if report.changed else ""


def _frame(page: str, height: int) -> str:
    inner = escape(page, quote=True)
    style = f"width:100%;height:{height}px;border:0"
    return f'<iframe title="vramwise" sandbox="allow-scripts" style="{style}" srcdoc="{inner}"></iframe>'
