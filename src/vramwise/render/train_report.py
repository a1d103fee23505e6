"""A training report, as text (what happened, predicted and measured memory, the guard's warnings) and as an HTML file.

The file shows the measured memory over the steps, with the prediction and the card as lines.

The chart is plain SVG; the page needs no script. Everything in the chart is also in the tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import ceil
from typing import Any

from vramwise.render.html import plain_page
from vramwise.render.html.markup import Markup, element, together
from vramwise.render.html.sections import card, header, table
from vramwise.training.parent.measured import Compared, Peak, StepPeak, TrainReport, Which
from vramwise.units import GIB, gib, mib, readable

# Drawn twice, and the page shows one of them: the text of a wide chart is too small on a phone.
_WIDE, _NARROW = 1000, 420
_HEIGHT = 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 34, 16, 34
_MOST_POINTS = 700
_TICKS = 5


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


def chart_parts(report: TrainReport) -> Iterator[Markup]:
    """Yield the chart and its legend."""
    steps = report.step_peaks
    if not steps:
        yield element("p", "No samples.")
        return
    yield _Chart(report, steps, _WIDE).draw("wide")
    yield _Chart(report, steps, _NARROW).draw("narrow")
    keys = [("reserved", "peak reserved"), ("allocated", "peak allocated"), ("predicted", "predicted reserved")]
    keys += [("limit", "the card")] if report.device_bytes else []
    yield element("ul", *(_key(name, label) for name, label in keys), class_="line-keys")


def _key(name: str, label: str) -> Markup:
    line = element("line", class_=name, x1=0, x2=26, y1=5, y2=5)
    return element("li", element("svg", line, class_="memory-lines", viewBox="0 0 26 10", aria_hidden="true"), label)


class _Chart:
    """Steps on the x axis, bytes on the y axis; attempts follow each other, because a restart goes back in steps."""

    def __init__(self, report: TrainReport, steps: Sequence[StepPeak], width: int) -> None:
        self._report = report
        self._width = width
        self._steps = steps
        self._predicted = report.predicted_reserved_bytes
        highest = max(step.reserved for step in steps)
        self._top = 1.05 * max(highest, self._predicted or 0, report.device_bytes or 0, 1)  # the height is never 0

    def draw(self, name: str) -> Markup:
        """Return the SVG, with the class that says where it is shown."""
        reserved = [step.reserved for step in self._steps]
        allocated = [step.allocated for step in self._steps]
        label = f"Peak reserved up to {gib(max(reserved))}, peak allocated up to {gib(max(allocated))}"
        return element(
            "svg",
            *self._grid(),
            *self._restarts(),
            self._level(self._report.device_bytes, "limit"),
            self._level(self._predicted, "predicted"),
            self._line(allocated, "allocated"),
            self._line(reserved, "reserved"),
            *self._evals(),
            class_=f"memory-lines {name}",
            viewBox=f"0 0 {self._width} {_HEIGHT}",
            role="img",
            aria_label=label,
        )

    def _x(self, at: float) -> float:
        return _LEFT + (self._width - _LEFT - _RIGHT) * at / max(len(self._steps) - 1, 1)

    def _y(self, size_bytes: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * size_bytes / self._top

    def _grid(self) -> Iterator[Markup]:
        step = max(1, ceil(self._top / GIB / _TICKS)) * GIB if self._top > 2 * GIB else self._top / _TICKS
        level = 0.0
        while level <= self._top:
            y = f"{self._y(level):.1f}"
            yield element("line", class_="grid", x1=_LEFT, x2=self._width - _RIGHT, y1=y, y2=y)
            size = gib(int(level)) if self._top > 2 * GIB else mib(int(level))
            yield element("text", size, x=_LEFT - 6, y=y, text_anchor="end", dominant_baseline="middle")
            level += step
        ticks = _TICKS if self._width == _WIDE else 2
        for part in range(ticks + 1):
            at = round(part * (len(self._steps) - 1) / ticks)
            yield element(
                "text", f"step {self._steps[at].step}", x=f"{self._x(at):.1f}", y=_HEIGHT - 10, text_anchor="middle"
            )

    def _level(self, size_bytes: int | None, name: str) -> Markup | None:
        if not size_bytes:
            return None
        y = f"{self._y(size_bytes):.1f}"
        return element("line", class_=name, x1=_LEFT, x2=self._width - _RIGHT, y1=y, y2=y)

    def _line(self, values: Sequence[int], name: str) -> Markup:
        """Return a line. In long runs many steps share a point; the highest is drawn, so that no peak is lost."""
        stride = ceil(len(values) / _MOST_POINTS)
        points = [(start, max(values[start : start + stride])) for start in range(0, len(values), stride)]
        drawn = " ".join(f"{self._x(x):.1f},{self._y(y):.1f}" for x, y in points)
        return Markup(f'<polyline class="{name}" points="{drawn}"/>')  # `element` would truncate such a long text

    def _evals(self) -> Iterator[Markup]:
        evals = [(at, step) for at, step in enumerate(self._steps) if step.evaluated]
        for at, step in evals[:: ceil(len(evals) / _MOST_POINTS) or 1]:
            title = element("title", f"eval at step {step.step}: {gib(step.reserved)} reserved")
            x, y = f"{self._x(at):.1f}", f"{self._y(step.reserved):.1f}"
            yield element("circle", title, class_="eval", cx=x, cy=y, r=4)

    def _restarts(self) -> Iterator[Markup]:
        for at, (before, after) in enumerate(pairwise(self._steps), start=1):
            if before.attempt != after.attempt:
                x = f"{self._x(at):.1f}"
                title = element("title", f"restarted at step {after.step}")
                yield element("line", title, class_="restart", x1=x, x2=x, y1=_TOP, y2=_HEIGHT - _BOTTOM)


def render_train_report(report: TrainReport) -> list[str]:
    """Return all lines of the report."""
    return list(_lines(report))


def _lines(report: TrainReport) -> Iterator[str]:
    yield headline(report)
    yield from (f"  {line}" for line in decision_lines(report.decisions))
    rows = report.compared
    if report.device is None:
        yield "no GPU was used: nothing was measured"
    elif rows:
        yield ""
        yield from _ranks(report)
        yield from _table(rows)
    for warning in report.last.warnings:
        yield f"warning [{warning['rule']}] step {warning['step']}: {warning['message']}"
    if report.cut:
        yield "(only the first part of the log was read: it exceeds 64 MiB or holds too many values)"
    if report.torn:
        yield f"({report.torn} line(s) of the log were cut off when the process was killed)"


def _ranks(report: TrainReport) -> Iterator[str]:
    """Yield, for several ranks, which one reserved most and what the others reserved."""
    if len(report.ranks) < 2:
        return
    by_size = sorted(report.ranks, key=lambda one: (one.peak.reserved_bytes, one.peak.allocated_bytes, -one.rank))
    fullest, others = by_size[-1], by_size[:-1]
    least, most = gib(others[0].peak.reserved_bytes), gib(others[-1].peak.reserved_bytes)
    rest = least if least == most else f"{least} to {most}"
    yield f"{len(report.ranks)} ranks: the fullest is rank {fullest.rank}, shown below; the others reserved {rest}"


def headline(report: TrainReport) -> str:
    """Return one line: the card, the number of attempts, and how far the run got."""
    last = report.last
    words = [report.output_dir]
    if report.device is not None:
        words.append(report.device if report.device_bytes is None else f"{report.device}, {gib(report.device_bytes)}")
    if len(report.attempts) > 1:
        words.append(f"{len(report.attempts)} attempts")
    of_steps = f" of {last.start['max_steps']}" if last.start.get("max_steps") else ""
    words.append("ended" if last.ended else f"measured to step {report.last_step}{of_steps}")
    return " · ".join(words)


def decision_lines(decisions: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield every decision in words; attempts are numbered consecutively, also across a resume."""
    number = 0
    for decision in decisions:
        number += decision.get("what") == "attempt"
        line = _decision_line({**decision, "attempt": number})
        if line:
            yield line


def _decision_line(decision: Mapping[str, Any]) -> str | None:
    """Return a decision in words; None if it says nothing new."""
    if decision.get("what") == "attempt":
        batch = f"micro {decision.get('micro_batch_size')} × accumulation {decision.get('gradient_accumulation_steps')}"
        since = decision.get("resume_from") or "the start"
        evals = f", eval batch {decision['eval_batch_size']}" if decision.get("eval_batch_size") else ""
        return f"attempt {decision.get('attempt')}: {batch}{evals}, from {since}"
    if decision.get("what") == "out-of-memory":
        then = decision.get("next") or "given up"
        return f"out of memory in {decision.get('phase')} at step {decision.get('step')} → {then}"
    if decision.get("what") == "advice":
        return "; ".join(str(line).strip() for line in decision.get("advice") or ()) or None
    if decision.get("what") == "end":
        return f"ended with exit code {decision.get('exit_code')}"
    return None


def _table(rows: list[Compared]) -> Iterator[str]:
    yield f"{'':10}{'allocated':^31}  {'reserved':^31}"
    yield f"{'phase':10}{'predicted':>10}{'measured':>11}{'':>10}  {'predicted':>10}{'measured':>11}{'':>10}"
    for row in rows:
        cells = (*_cells(row, "allocated_bytes"), *_cells(row, "reserved_bytes"))
        yield f"{row.phase:10}{cells[0]:>10}{cells[1]:>11}{cells[2]:>10}  {cells[3]:>10}{cells[4]:>11}{cells[5]:>10}"


def _cells(row: Compared, which: Which) -> tuple[str, str, str]:
    return size_of(row.predicted, which), size_of(row.measured, which), difference(row, which)


def size_of(peak: Peak | None, which: Which) -> str:
    """Return a size, or a dash if there is none."""
    if peak is None:
        return "–"
    return readable(int(getattr(peak, which)))


def difference(row: Compared, which: Which) -> str:
    """Return the error of the prediction as a percentage of the measured value."""
    error = row.error(which)
    return "" if error is None else f"{100 * error:+.1f} %"
