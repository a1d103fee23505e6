"""A training report as text: what happened, predicted against measured memory, the guard's warnings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from vramwise.training.parent.measured import Compared, Peak, TrainReport, Which
from vramwise.units import gib, readable


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
