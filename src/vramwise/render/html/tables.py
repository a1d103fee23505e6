"""The tables of the page: the peak, the largest holdings, the segments, the phases, and the chart as a table.

They contain everything that the charts show.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from vramwise.allocator.profile import Allocation, Profile, SegmentBar
from vramwise.render.html.markup import Markup, breakable, element, together
from vramwise.render.html.sections import bar, breakdown_parts, card, moment_name, scrolling, swatch, table
from vramwise.timeline import MemoryReport, PhasePeak, Tag
from vramwise.types import GpuSpec
from vramwise.units import readable

LARGEST = 14
MAX_ROWS = 160
# A layer's number within a name: names that differ only there are grouped.
_NUMBER = re.compile(r"(?<![^.\s])\d+(?![^.:\s])")


def breakdown(report: MemoryReport, gpu: GpuSpec | None, colours: Mapping[str, int]) -> Markup:
    """Return everything on the card at the peak of reserved memory."""
    whole = report.device_bytes or 1
    rows: list[tuple[str, ...]] = [
        (together(swatch(colour), name), readable(amount), f"{100 * amount / whole:.1f} %", bar(amount / whole, colour))
        for name, amount, colour in breakdown_parts(report, colours)
    ]
    rows.append((element("b", "on the card"), element("b", readable(report.device_bytes)), "", ""))
    if gpu is not None and report.out_of_memory is None:
        spare = gpu.memory_bytes - report.device_bytes
        name = "spare" if spare >= 0 else "missing"
        rows.append((name, readable(abs(spare)), f"of {readable(gpu.memory_bytes)}", ""))
    where = moment_name(report.peak_phase, report.peak_step)
    caption = f"At the highest reserved: {where}"
    return card("breakdown", "What fills the peak", table("breakdown", caption, ("for", "bytes", "share", ""), rows))


def largest(profile: Profile, colours: Mapping[str, int]) -> Markup | None:
    """Return the largest holdings at the focus; the same holding in every layer is one row."""
    groups = _by_kind(profile.holdings)
    if not groups:
        return None
    most = groups[0].size_bytes or 1
    rows: list[tuple[str, ...]] = [
        (
            together(swatch(colours.get(held.tag.category, 8)), breakable(held.tag.label or f"({held.tag.category})")),
            f"{held.times:,}",
            readable(held.size_bytes),
            bar(held.size_bytes / most, str(colours.get(held.tag.category, 8))),
        )
        for held in groups[:LARGEST]
    ]
    rest = groups[LARGEST:]
    if rest:
        blocks = sum(held.times for held in rest)
        rows.append((f"{len(rest):,} more kinds", f"{blocks:,}", readable(sum(held.size_bytes for held in rest)), ""))
    return card(
        "largest", "The largest there", table("largest holdings", _when(profile), ("what", "blocks", "bytes", ""), rows)
    )


def _by_kind(holdings: Sequence[Allocation]) -> list[Allocation]:
    kinds: dict[Tag, list[int]] = {}
    for held in holdings:
        counted = kinds.setdefault(Tag(held.tag.category, _NUMBER.sub("*", held.tag.label)), [0, 0])
        counted[0] += held.size_bytes
        counted[1] += held.times
    listed = [Allocation(kind, total, times) for kind, (total, times) in kinds.items()]
    return sorted(listed, key=lambda held: -held.size_bytes)


def _when(profile: Profile) -> str:
    moment = profile.moments[profile.focus]
    phase = profile.phase_at(moment.event)
    what = "When memory ran out" if profile.failed is not None else "At the highest reserved"
    return f"{what}: {moment_name(phase.name, phase.step)}"


def segments(profile: Profile) -> Markup | None:
    """Return, for each pool, how much is reserved and how much of it is free."""
    if not profile.segments:
        return None
    pools: dict[str, list[SegmentBar]] = {}
    for bar_ in sorted(profile.segments, key=lambda bar_: bar_.small_pool):
        name = "small blocks (up to 1 MiB)" if bar_.small_pool else "large blocks"
        pools.setdefault(name + (", expandable" if bar_.expandable else ""), []).append(bar_)
    rows = [_pool(name, bars) for name, bars in pools.items()]
    if len(rows) > 1:
        rows.append(_pool("all", profile.segments))
    head = (
        "pool",
        "pieces",
        "reserved",
        "in use",
        "free within used segments",
        "entirely free segments",
        "largest hole",
    )
    place = element("div", id="segment-map", class_="chart")
    return card("segments", "The allocator's memory", place, table("segments", _when(profile), head, rows))


def _pool(name: str, bars: Sequence[SegmentBar]) -> tuple[str, ...]:
    reserved = sum(part.size_bytes for part in bars)
    wholly = sum(part.size_bytes for part in bars if part.free_bytes == part.size_bytes)
    free = sum(part.free_bytes for part in bars)
    hole = max(part.largest_hole_bytes for part in bars)
    return (
        name,
        f"{len(bars):,}",
        *map(readable, (reserved, reserved - free, free - wholly, wholly, hole)),
    )


def phases(report: MemoryReport, gpu: GpuSpec | None, measured: Sequence[PhasePeak]) -> Markup | None:
    """Return a row per step and a column per phase; consecutive steps with the same peaks share a row."""
    if not report.phases:
        return None
    seen = {(peak.step, peak.phase): peak for peak in measured}
    names = list(dict.fromkeys(peak.phase for peak in report.phases))
    whole = max(report.peak_reserved_bytes, gpu.memory_bytes - report.outside_bytes if gpu else 0) or 1
    rows = []
    for steps, peaks in _alike(report.phases, seen):
        by_name = {peak.phase: peak for peak in peaks}
        cells = [_mark(report, by_name.get(name), seen, whole) for name in names]
        rows.append(element("tr", element("th", steps, scope="row"), *cells))
    caption = "Peaks within each phase: allocated, with reserved below"
    caption += "; then the measured values, and the error of the reserved prediction" if measured else ""
    head = element("tr", *(element("th", name, scope="col") for name in ("step", *names)))
    shown = scrolling(
        "peaks by phase",
        element(
            "table",
            element("caption", caption),
            element("thead", head),
            element("tbody", *rows[:MAX_ROWS]),
            class_="phases",
        ),
    )
    return card("phases", "Phase by phase", shown, _left_out(len(rows)))


def _mark(
    report: MemoryReport, peak: PhasePeak | None, measured: Mapping[tuple[int, str], PhasePeak], whole: int
) -> Markup:
    if peak is None:
        return element("td")
    heat = min(4, 5 * peak.peak_allocated_bytes // whole)
    most = "most " if (peak.step, peak.phase) == (report.peak_step, report.peak_phase) else ""
    found = measured.get((peak.step, peak.phase))
    return element(
        "td",
        readable(peak.peak_allocated_bytes),
        element("small", readable(peak.peak_reserved_bytes)),
        None if found is None else _measured(peak, found),
        class_=f"{most}heat{heat}",
    )


def _measured(peak: PhasePeak, found: PhasePeak) -> Markup:
    """Return the measured peaks, and the error of the reserved prediction."""
    off = peak.peak_reserved_bytes / found.peak_reserved_bytes - 1 if found.peak_reserved_bytes else 0.0
    lines = (readable(found.peak_allocated_bytes), readable(found.peak_reserved_bytes), f"{100 * off:+.1f} %")
    return together(*(element("small", line, class_="measured") for line in lines))


def _alike(
    peaks: Sequence[PhasePeak], measured: Mapping[tuple[int, str], PhasePeak]
) -> Iterator[tuple[str, list[PhasePeak]]]:
    """Yield consecutive steps with the same predicted and measured peaks: their numbers, and the peaks of one."""
    by_step: dict[int, list[PhasePeak]] = {}
    for peak in peaks:
        by_step.setdefault(peak.step, []).append(peak)

    def marks(step: int) -> list[object]:
        found = [measured.get((step, peak.phase)) for peak in by_step[step]]
        return [
            (peak[0].phase, *_figures(peak[0]), peak[1] and _figures(peak[1]))
            for peak in zip(by_step[step], found, strict=True)
        ]

    for _, run in groupby(by_step, key=marks):
        steps = list(run)
        first, last = steps[0], steps[-1]
        yield (f"{first}" if first == last else f"{first}–{last}"), by_step[first]


def _figures(peak: PhasePeak) -> tuple[int, int]:
    return peak.peak_allocated_bytes, peak.peak_reserved_bytes


def timeline(profile: Profile, categories: Sequence[str]) -> Markup:
    """Return the placeholder of the timeline chart, and the same as a table."""
    empty = None if profile.moments else element("p", "Nothing was allocated.")
    place = element("div", empty, id="timeline-chart", class_="chart")
    return card("timeline", "Memory over the run", place, _timeline_table(profile, categories))


def _timeline_table(profile: Profile, categories: Sequence[str]) -> Markup | None:
    """Return the timeline as a table, for readers who cannot see it: each phase at its peak."""
    if not profile.moments or not profile.marks:
        return None
    columns = [(name, profile.categories.index(name)) for name in categories if name in profile.categories]
    ends = [mark.event for mark in profile.marks[1:]] + [profile.event_count]
    rows = []
    moments = iter(profile.moments)
    moment = next(moments, None)
    for mark, end in zip(profile.marks, ends, strict=True):
        within = []
        while moment is not None and moment.event < end:
            if moment.event >= mark.event:
                within.append(moment)
            moment = next(moments, None)
        if within:
            fullest = max(within, key=lambda found: found.allocated_bytes)
            figures = [fullest.allocated_bytes, max(found.reserved_bytes for found in within)]
            figures += [fullest.category_bytes[at] for _, at in columns]
            rows.append((moment_name(mark.phase.name, mark.phase.step), *map(readable, figures)))
    head = ("phase", "allocated", "reserved", *(name for name, _ in columns))
    shown = table("timeline", "Each phase at its peak", head, rows[:MAX_ROWS])
    return element("details", element("summary", "The chart as a table"), shown, _left_out(len(rows)))


def _left_out(count: int) -> Markup | None:
    return element("p", f"{count - MAX_ROWS:,} more rows not shown.", class_="note") if count > MAX_ROWS else None
