"""A training report as one HTML file: measured memory over the steps, with the prediction and the card as lines.

The chart is plain SVG; the page needs no script. Everything in the chart is also in the tables.
"""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.render.html.markup import Markup, element, together
from vramwise.render.html.plain import plain_page
from vramwise.render.html.sections import card, header, table
from vramwise.render.train_chart import chart_parts
from vramwise.render.train_report_text import decision_lines, difference, headline, size_of
from vramwise.training.parent.measured import Compared, TrainReport


def render_train_html(report: TrainReport) -> str:
    """Return the whole page."""
    return plain_page(f"Memory of {report.output_dir}", _body(report), "train.css")


def _body(report: TrainReport) -> Markup:
    rows = report.compared
    top = header(f"Memory of {report.output_dir}", _verdict(report, rows), headline(report), "", _state(report))
    if report.device is None:  # nothing was measured, so there is nothing to draw or compare
        return together(top, _history(report))
    return together(
        top,
        card("steps", "Memory over the steps", *chart_parts(report)),
        element("div", _comparison(rows), _warnings(report), class_="halves"),
        _history(report),
    )


def _state(report: TrainReport) -> str:
    if report.device is None:
        return "open"
    return "good" if report.last.ended else "bad" if report.out_of_memories else "open"


def _verdict(report: TrainReport, rows: Sequence[Compared]) -> str:
    if report.device is None:
        return "No GPU was used: nothing was measured"
    if not report.last.samples:
        return "The run ended before the first sample"
    whole = rows[-1]
    measured = size_of(whole.measured, "reserved_bytes")
    against = difference(whole, "reserved_bytes")
    said = f"Reserved {measured} at most"
    if against:
        said += f"; predicted {size_of(whole.predicted, 'reserved_bytes')} ({against})"
    failures = len(report.out_of_memories)
    return said + (f"; {failures} out-of-memory, recovered" if failures and report.last.ended else "")


def _comparison(rows: Sequence[Compared]) -> Markup:
    head = ("phase", "allocated: predicted", "measured", "difference", "reserved: predicted", "measured", "difference")
    body = [
        (
            row.phase,
            *(
                cell
                for which in ("allocated_bytes", "reserved_bytes")
                for cell in (size_of(row.predicted, which), size_of(row.measured, which), difference(row, which))
            ),
        )
        for row in rows
    ]
    caption = "Peaks of each phase; the difference is a percentage of the measured value"
    return card("compared", "Predicted against measured", table(caption, caption, head, body))


def _warnings(report: TrainReport) -> Markup:
    items = [
        element(
            "li",
            element(
                "p",
                element("span", "warning", class_="badge warning"),
                element("code", str(warning["rule"])),
                element("span", f"step {warning['step']}", class_="place"),
                class_="head",
            ),
            element("p", str(warning["message"])),
        )
        for attempt in report.attempts
        for warning in attempt.warnings
    ]
    shown = element("ul", *items, class_="findings") if items else element("p", "Nothing unusual.")
    return card("warnings", "What the guard noticed", shown)


def _history(report: TrainReport) -> Markup | None:
    lines = list(decision_lines(report.decisions))
    listed = element("ol", *(element("li", line) for line in lines))
    return card("history", "What happened", listed) if lines else None
