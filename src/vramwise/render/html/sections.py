"""The parts of the page that need no script: verdict, figures, findings, breakdown, assumptions.

Everything in the charts is also here or in `tables` as text. Widths are SVG attributes, because the content security
policy forbids inline styles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vramwise.render.html.markup import Child, Markup, element, together
from vramwise.timeline import MemoryReport
from vramwise.types import Finding, GpuSpec, Severity
from vramwise.units import readable

_WORDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_BAR = 1000  # units across a bar


def swatch(colour: int | str) -> Markup:
    """A small square in a category's colour."""
    return element("span", class_=f"swatch k{colour}", aria_hidden="true")


def outcome(report: MemoryReport, gpu: GpuSpec | None) -> str:
    """Return `bad`, `good`, or `open` if there is no card or it fits only by releasing cached memory."""
    if report.out_of_memory is not None:
        return "bad"
    if gpu is None or (report.capacity_bytes is not None and report.retries):
        return "open"
    return "good" if report.device_bytes <= gpu.memory_bytes else "bad"


def header(title: str, verdict: str | Sequence[str], subtitle: str, expected_error: str, state: str) -> Markup:
    """Return the title and the answer. The first line of a verdict is the answer, the others are its reasons."""
    sign = {"good": "✓", "bad": "✗", "open": "•"}[state]
    answer, *small = [verdict] if isinstance(verdict, str) else verdict
    if expected_error:
        small.append(f"Expected error: {expected_error}")
    return element(
        "header",
        element("h1", title),
        element("p", subtitle, class_="subtitle") if subtitle else None,
        element(
            "p",
            element("span", sign, class_="sign", aria_hidden="true"),
            element("span", answer, *(element("small", line) for line in small)),
            class_=f"verdict {state}",
        ),
    )


def ways_out(lines: Sequence[str]) -> Markup | None:
    """Return what would make it fit: a title, then each change and the command that shows it."""
    if not lines:
        return None
    items = [element("p", element("code", line) if line.startswith("vramwise ") else line) for line in lines[1:]]
    return card("ways-out", lines[0], *items)


Figure = tuple[str, str, str]  # a name, a value, a note


def figures(report: MemoryReport, gpu: GpuSpec | None, more: Sequence[Figure] = ()) -> Markup:
    """Return the key figures in one row."""
    return figure_row([*_figures(report, gpu), *more])


def figure_row(items: Sequence[Figure]) -> Markup:
    """Return named figures in one row."""
    shown = [
        element("div", element("dt", name), element("dd", value), element("dd", note, class_="note") if note else None)
        for name, value, note in items
    ]
    return element("dl", *shown, class_="figures")


def _figures(report: MemoryReport, gpu: GpuSpec | None) -> Iterator[Figure]:
    idle = report.idle_bytes
    share = f"{100 * idle / report.peak_reserved_bytes:.0f} % of it unused at that moment" if idle else ""
    yield "Peak reserved", readable(report.peak_reserved_bytes), share
    yield "Peak allocated", readable(report.peak_allocated_bytes), "held by tensors"
    outside = f"including {readable(report.outside_bytes)} outside torch" if report.outside_bytes else ""
    yield "On the card", readable(report.device_bytes), outside
    failure = report.out_of_memory
    if gpu is not None and failure is None:
        spare = gpu.memory_bytes - report.device_bytes
        yield ("Spare" if spare >= 0 else "Missing"), readable(abs(spare)), f"{gpu.name}, {readable(gpu.memory_bytes)}"
    if failure is not None:
        where = moment_name(failure.phase, failure.step)
        yield "Out of memory", where, f"{failure.label}: {readable(failure.requested_bytes)} requested".lstrip(": ")
    yield "Peak at", moment_name(report.peak_phase, report.peak_step), ""
    if report.retries:
        yield "Retries", f"{report.retries:,}", "the allocator emptied its cache to continue"


def moment_name(phase: str, step: int) -> str:
    """Return `step 2, backward`, or `load` before the first step."""
    return f"step {step}, {phase}" if step else phase


def memory_bar(report: MemoryReport, gpu: GpuSpec | None, colours: Mapping[str, int]) -> Markup:
    """Return the card as one bar: what fills it at the peak, and what is free."""
    parts = breakdown_parts(report, colours)
    total = sum(amount for _, amount, _ in parts)
    whole = max(total, gpu.memory_bytes if gpu is not None else 0) or 1
    rects, start = [], 0
    for name, amount, colour in parts:
        title = element("title", f"{name}: {readable(amount)}")
        x, width = _BAR * start / whole, _BAR * amount / whole
        rects.append(
            element("g", title, element("rect", class_=f"k{colour}", x=_n(x), y=0, width=_n(width), height=24))
        )
        start += amount
    if gpu is not None and total > gpu.memory_bytes:
        edge = _BAR * gpu.memory_bytes / whole
        rects.append(element("path", class_="edge", d=f"M{_n(edge)} -4V28"))
    label = ", ".join(f"{name} {readable(amount)}" for name, amount, _ in parts)
    bar = element(
        "svg",
        *rects,
        class_="memory-bar",
        viewBox=f"0 0 {_BAR} 24",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"At the peak: {label}",
    )
    keys = [
        element("li", swatch(colour), f"{name} ", element("b", readable(amount)))
        for name, amount, colour in parts
        if amount
    ]
    if gpu is not None and total > gpu.memory_bytes:
        keys.append(element("li", swatch("limit"), f"{gpu.name} ", element("b", readable(gpu.memory_bytes))))
    elif gpu is not None and report.out_of_memory is None:
        keys.append(element("li", swatch("free"), "spare ", element("b", readable(whole - total))))
    return together(bar, element("ul", *keys, class_="keys"))


def breakdown_parts(report: MemoryReport, colours: Mapping[str, int]) -> list[tuple[str, int, str]]:
    """Return name, bytes and colour of everything on the card at the peak."""
    parts = [(name, amount, str(colours.get(name, 8))) for name, amount in report.breakdown_bytes.items() if amount]
    if report.idle_bytes:
        parts.append(("reserved, not in use", report.idle_bytes, "idle"))
    if report.outside_bytes:
        parts.append(("outside torch", report.outside_bytes, "outside"))
    return parts


def findings_list(findings: Sequence[Finding]) -> Markup | None:
    """Return the findings, the most severe first; None if there are none."""
    if not findings:
        return None
    ranked = sorted(findings, key=lambda found: -found.severity.rank)
    items = [_finding(found) for found in ranked]
    return card("findings", f"Findings ({len(items)})", element("ul", *items, class_="findings"))


def _finding(found: Finding) -> Markup:
    word = _WORDS[found.severity]
    place = f"line {found.line}" if found.line is not None and found.key is not None else None
    fix = None
    if found.fix is not None:
        words = found.fix.effect_words
        unsafe = f" ({words})" if words else ""
        fix = element("p", element("b", "Fix: "), found.fix.title, unsafe, class_="fix")
    head = element(
        "p",
        element("span", word, class_=f"badge {word}"),
        element("code", found.rule),
        element("span", place, class_="place") if place else None,
        class_="head",
    )
    return element("li", head, element("p", found.message), fix)


def assumptions_list(assumptions: Sequence[str], settings: str) -> Markup:
    """Return the assumptions behind the figures, and the allocator settings."""
    items = [element("li", assumption) for assumption in assumptions]
    rest = (element("dt", "Allocator"), element("dd", element("code", settings) if settings else "torch's defaults"))
    return card(
        "assumptions",
        "Assumptions",
        element("ul", *items) if items else element("p", "No assumptions were needed."),
        element("dl", *rest, class_="plain"),
    )


def card(key: str, title: str, *children: Child) -> Markup:
    """Return a titled section of the page."""
    heading = element("h2", title, id=f"{key}-title")
    return element("section", heading, *children, id=key, class_="card", aria_labelledby=f"{key}-title")


def bar(part: float, colour: str) -> Markup:
    """Return a bar inside a table cell, `part` of the cell's width."""
    width = _n(_BAR * min(max(part, 0.0), 1.0))
    rect = element("rect", class_=f"k{colour}", x=0, y=0, width=width, height=10)
    return element("svg", rect, class_="bar", viewBox=f"0 0 {_BAR} 10", preserveAspectRatio="none", aria_hidden="true")


def table(name: str, caption: str, head: Sequence[str], rows: Sequence[Sequence[Child]]) -> Markup:
    """Return a table that scrolls sideways on narrow pages; the first column names the row."""
    header_cells = [element("th", title, scope="col") if title else element("td") for title in head]
    body = [
        element("tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:])) for row in rows
    ]
    inner = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *header_cells)),
        element("tbody", *body),
    )
    return scrolling(name, inner)


def scrolling(name: str, inner: Markup) -> Markup:
    """Wrap wide content so that it scrolls sideways, also with the keyboard."""
    return element("div", inner, class_="scroll", tabindex=0, role="region", aria_label=name)


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
