"""The data of the page's script: the profile as compact JSON, and the order and colours of categories.

Blocks are multiples of 512 bytes, so sizes are stored in that unit without loss. Series are stored as differences, most
of which are 0. Labels are listed once, and only if they are used.

Long-lived memory is at the bottom of the stack, short-lived memory on top. The colours are in page.css (`.k0` …
`.k11`), a palette that people with any kind of colour vision can distinguish.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from vramwise.allocator.profile import HOLE, Allocation, Profile, Run, SegmentBar
from vramwise.render.html.markup import printable
from vramwise.timeline import MemoryReport, PhasePeak, Tag
from vramwise.types import GpuSpec
from vramwise.units import gib

UNIT = 512
# More runs than this cannot be distinguished on a screen; then the smallest neighbours are merged.
MAX_RUNS = 6000
_MAX_LABEL = 160
_FREE = -1
# In stack order, bottom first: the position is the number of the colour.
KNOWN = ("weights", "optimizer", "gradients", "workspace", "data", "activations", "logits", "temporary", "other")
EXTRA_COLOURS = 3  # for categories not named above


def page_data(profile: Profile, report: MemoryReport, gpu: GpuSpec | None, measured: Sequence[PhasePeak]) -> str:
    """Return JSON that is safe inside a script element: no `<`, `>` or `&`, only ASCII."""
    text = json.dumps(_data(profile, report, gpu, measured), separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def page_categories(profile: Profile) -> list[str]:
    """Return the categories that hold memory at any moment or appear in a segment, in stack order."""
    used = {
        name
        for at, name in enumerate(profile.categories)
        if any(moment.category_bytes[at] for moment in profile.moments)
    }
    used |= {run.category for bar in profile.segments for run in bar.runs if run.category != HOLE}
    return stack_order([name for name in profile.categories if name in used] + sorted(used))


def _data(profile: Profile, report: MemoryReport, gpu: GpuSpec | None, measured: Sequence[PhasePeak]) -> dict[str, Any]:
    categories = page_categories(profile)
    numbers = colours(categories)
    labels = _Labels(categories)
    columns = [profile.categories.index(name) if name in profile.categories else None for name in categories]
    names = list(dict.fromkeys(mark.phase.name for mark in profile.marks))
    return {
        "unit": UNIT,
        "events": profile.event_count,
        "categories": [[printable(name), numbers[name]] for name in categories],
        "phases": [printable(name) for name in names],
        "marks": [[mark.event, names.index(mark.phase.name), mark.phase.step] for mark in profile.marks],
        "at": _differences(moment.event for moment in profile.moments),
        "reserved": _differences(moment.reserved_bytes // UNIT for moment in profile.moments),
        "series": [
            _differences(0 if at is None else moment.category_bytes[at] // UNIT for moment in profile.moments)
            for at in columns
        ],
        "allocations": [labels.list(moment.allocations) for moment in profile.moments],
        "peak": profile.peak,
        "focus": profile.focus,
        "failed": profile.failed and [labels.number(profile.failed.tag), profile.failed.size_bytes],
        "lines": _lines(profile, report, gpu),
        "measured": [
            [peak.step, printable(peak.phase), peak.peak_allocated_bytes, peak.peak_reserved_bytes] for peak in measured
        ],
        "segments": _segments(profile.segments, categories, labels),
        "labels": labels.listed,
    }


class _Labels:
    """The labels in use, each with its category; allocations refer to them by number."""

    def __init__(self, categories: Sequence[str]) -> None:
        self.listed: list[list[Any]] = []
        self._categories = {name: at for at, name in enumerate(categories)}
        self._numbers: dict[Tag, int] = {}

    def number(self, tag: Tag) -> int:
        found = self._numbers.get(tag)
        if found is None:
            found = self._numbers[tag] = len(self.listed)
            self.listed.append([self._categories.get(tag.category, _FREE), printable(tag.label[:_MAX_LABEL])])
        return found

    def list(self, allocations: Iterable[Allocation]) -> list[int]:
        """Return allocations as a flat list: label, size, times, label, size, times…"""
        flat: list[int] = []
        for tag, size_bytes, times in allocations:
            flat += (self.number(tag), size_bytes // UNIT, times)
        return flat


def _differences(values: Iterable[int]) -> list[int]:
    listed = [0, *values]
    return [after - before for before, after in pairwise(listed)]


def _lines(profile: Profile, report: MemoryReport, gpu: GpuSpec | None) -> list[list[Any]]:
    """Return the horizontal lines of the chart: the card's capacity, and a limit if there is one.

    Each is a list of bytes, name and short name.
    """
    lines: list[list[Any]] = []
    room = None
    if gpu is not None:
        room = gpu.memory_bytes - report.outside_bytes
        outside = f" less {gib(report.outside_bytes)} outside torch" if report.outside_bytes else ""
        name = f"{gpu.name}: {gib(gpu.memory_bytes)}"
        lines.append([room, printable(name + outside), printable(name)])
    bound = profile.bound_bytes
    if bound is not None and bound != room:
        lines.append([bound, f"limit: {gib(bound)}", f"limit: {gib(bound)}"])
    return lines


def _segments(bars: Sequence[SegmentBar], categories: Sequence[str], labels: _Labels) -> list[list[Any]]:
    """Return the segments, large pool first.

    Each: pool (1 = small), expandable, stream, then category, size, label and blocks of each run.
    """
    numbers = {name: at for at, name in enumerate(categories)} | {HOLE: _FREE}
    coarse = sum(len(bar.runs) for bar in bars) > MAX_RUNS
    finest = sum(bar.size_bytes for bar in bars) // MAX_RUNS if coarse else 0
    listed = []
    for bar in sorted(bars, key=lambda bar: bar.small_pool):
        flat: list[int] = []
        for run in _coarsened(bar.runs, finest):
            label = 0 if run.category == HOLE else labels.number(Tag(run.category, run.label))
            flat += (numbers[run.category], run.size_bytes // UNIT, label, run.blocks)
        listed.append([int(bar.small_pool), int(bar.expandable), bar.stream, flat])
    return listed


def _coarsened(runs: Iterable[Run], finest: int) -> list[Run]:
    """Merge neighbours that are both too small to be seen; the larger one gives its name."""
    joined: list[Run] = []
    for run in runs:
        if joined and run.size_bytes < finest and joined[-1].size_bytes < finest:
            before = joined[-1]
            name = max(before, run, key=lambda part: part.size_bytes)
            size = before.size_bytes + run.size_bytes
            joined[-1] = Run(name.category, size, name.label, before.blocks + run.blocks)
        else:
            joined.append(run)
    return joined


def stack_order(categories: Iterable[str]) -> list[str]:
    """Return known categories bottom first, then unknown ones in the given order."""
    given = list(dict.fromkeys(categories))
    return [name for name in KNOWN if name in given] + [name for name in given if name not in KNOWN]


def colours(categories: Iterable[str]) -> dict[str, int]:
    """Return the colour number of each category."""
    strangers = 0
    numbers = {}
    for name in stack_order(categories):
        if name in KNOWN:
            numbers[name] = KNOWN.index(name)
        else:
            numbers[name] = len(KNOWN) + strangers % EXTRA_COLOURS
            strangers += 1
    return numbers
