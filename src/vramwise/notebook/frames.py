"""Display results in notebooks, in a frame: the pages of `--html`, and simpler ones for results without a timeline.

The frame isolates the page's styles and scripts from the notebook; only the page's own script runs in it.
"""

from __future__ import annotations

from html import escape
from typing import Any

from vramwise.diagnosis.evidence import Diagnosis
from vramwise.documents.edit import diff
from vramwise.render import notebook_html as pages
from vramwise.render.fit_html import fit_page
from vramwise.render.prediction_html import prediction_page
from vramwise.variants.prediction import profile_of
from vramwise.verbs.check import FileReport
from vramwise.verbs.fit import FitReport
from vramwise.verbs.fix import FixReport
from vramwise.verbs.predict import Answer

_TALL, _LOW = 900, 420


def shown(result: Any) -> str | None:
    """Return the HTML frame for a result of a verb, or None if there is nothing to show."""
    results = result if isinstance(result, list) else [result]
    if len(results) == 1 and isinstance(results[0], Answer):
        return _answer(results[0])
    if results and all(isinstance(one, FileReport) for one in results):
        return _frame(pages.reports_page(results), _LOW)
    if results and all(isinstance(one, FixReport) for one in results):
        return _frame(pages.fixes_page([(one, _diff(one)) for one in results]), _LOW)
    if len(results) == 1 and isinstance(results[0], FitReport):
        return _frame(fit_page(results[0]), _TALL)
    if len(results) == 1 and isinstance(results[0], Diagnosis):
        return _frame(pages.diagnosis_report(results[0]), _LOW)
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
