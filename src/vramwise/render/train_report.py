"""A training report as one HTML file: measured memory over the steps, the prediction and the card as lines in it.

The chart is plain SVG made here; the page needs no script. Everything in the chart stands in the tables too.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files

from vramwise.render.html.markup import Child, Markup, element, together
from vramwise.render.train_chart import STYLE, chart_parts
from vramwise.render.train_report_text import decision_line, difference, headline, size_of
from vramwise.training.parent.measured import Compared, TrainReport


def render_train_html(report: TrainReport) -> str:
    """The whole page."""
    style = files("vramwise.render.html").joinpath("page.css").read_text(encoding="utf-8") + STYLE
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = together(
        Markup('<meta charset="utf-8">'),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name_="color-scheme", content="light dark"),
        element("title", f"Memory of {report.output_dir}"),
        Markup(f"<style>{style}</style>"),
    )
    main = element("main", _body(report))
    return f'<!doctype html>\n<html lang="en">\n<head>{head}</head>\n<body>{main}</body>\n</html>\n'


def _body(report: TrainReport) -> Markup:
    rows = report.compared
    header = _header(f"Memory of {report.output_dir}", _verdict(report, rows), headline(report), _state(report))
    if report.device is None:  # nothing was measured, so there is nothing to draw or to compare
        return together(header, _history(report))
    return together(
        header,
        _card("steps", "Memory over the steps", *chart_parts(report)),
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
        return "It ended before the first sample"
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
    table = _table("The highest marks of each phase; the difference is in per cent of the measured", head, body)
    return _card("compared", "Predicted against measured", table)


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
    return _card("warnings", "What the guard noticed", shown)


def _history(report: TrainReport) -> Markup | None:
    lines = [line for line in map(decision_line, report.decisions) if line]
    listed = element("ol", *(element("li", line) for line in lines))
    return _card("history", "What happened", listed) if lines else None


def _header(title: str, verdict: str, subtitle: str, state: str) -> Markup:
    sign = {"good": "✓", "bad": "✗", "open": "•"}[state]
    return element(
        "header",
        element("h1", title),
        element("p", subtitle, class_="subtitle"),
        element(
            "p",
            element("span", sign, class_="sign", aria_hidden="true"),
            element("span", verdict),
            class_=f"verdict {state}",
        ),
    )


def _card(key: str, title: str, *children: Child) -> Markup:
    heading = element("h2", title, id=f"{key}-title")
    return element("section", heading, *children, id=key, class_="card", aria_labelledby=f"{key}-title")


def _table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    body = [
        element("tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:])) for row in rows
    ]
    inner = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *(element("th", name, scope="col") for name in head))),
        element("tbody", *body),
    )
    return element("div", inner, class_="scroll", tabindex=0, role="region", aria_label=caption)
