"""The report as one HTML file: the memory timeline, the segments, findings and figures; no network, no dependencies.

The text is complete without the script; the script draws the two charts from the data beside it. What strangers wrote
(paths, labels, messages) passes through `markup` or the JSON of `data`, and the page's own policy lets no other script
or style run than the ones shipped here.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from pathlib import PurePath
from string import Template
from typing import TYPE_CHECKING, cast

from vramwise.allocator.profile import Profile
from vramwise.render.html import sections, tables
from vramwise.render.html.data import page_categories, page_data
from vramwise.render.html.markup import Markup, element, text, together
from vramwise.render.html.palette import colours
from vramwise.timeline import MemoryReport, PhasePeak
from vramwise.types import Finding, GpuSpec

if TYPE_CHECKING:
    from importlib.abc import ResourceLoader

_SCRIPTS = ("base.js", "timeline.js", "readout.js", "segments.js", "start.js")


def render_html(
    *,
    title: str,
    verdict: str | Sequence[str],
    subtitle: str,
    profile: Profile,
    report: MemoryReport,
    gpu: GpuSpec | None,
    findings: Sequence[Finding],
    assumptions: Sequence[str],
    expected_error: str,
    measured: Sequence[PhasePeak] = (),
    state: str | None = None,
    ways_out: Sequence[str] = (),
    further: Sequence[sections.Figure] = (),
    advice: Markup | None = None,
) -> str:
    """The whole page. `measured`: marks of a real run, shown beside those of the report and in the chart.

    `verdict`: the answer, then its reasons; `state` where the report alone does not decide it; `ways_out`: what would
    make a run fit; `further`: figures beside those of memory; `advice`: what to change after a failure, right below the
    verdict.
    """
    side = element(
        "div",
        sections.findings_list(findings),
        sections.assumptions_list(assumptions, report.settings),
        class_="side",
    )
    content = element("div", *picture(profile, report, gpu, measured), class_="content")
    body = together(
        sections.header(title, verdict, subtitle, expected_error, state or sections.outcome(report, gpu)),
        sections.ways_out(ways_out),
        advice,
        *at_a_glance(report, gpu, further, page_categories(profile)),
        element("div", content, side, class_="layout"),
    )
    return _page(title, body, page_data(profile, report, gpu, measured))


def at_a_glance(
    report: MemoryReport, gpu: GpuSpec | None, further: Sequence[sections.Figure] = (), categories: Sequence[str] = ()
) -> tuple[Markup, Markup]:
    """The card as a bar, and the figures that matter; `categories`: all that the picture below has colours for."""
    numbers = colours([*categories, *report.breakdown_bytes])
    return sections.memory_bar(report, gpu, numbers), sections.figures(report, gpu, further)


def picture(
    profile: Profile, report: MemoryReport, gpu: GpuSpec | None, measured: Sequence[PhasePeak] = ()
) -> tuple[Markup | None, ...]:
    """The places of both charts, and the tables that say the same; `page_data` is what the script draws there."""
    categories = page_categories(profile)
    numbers = colours([*categories, *report.breakdown_bytes])
    return (
        tables.timeline(profile, categories),
        element("div", tables.breakdown(report, gpu, numbers), tables.largest(profile, numbers), class_="halves"),
        tables.segments(profile),
        tables.phases(report, gpu, measured),
    )


def chart_script(opening: str, closing: str) -> str:
    """The script that draws both charts from `data`; `opening` gives it that, and `signal`, which stops it."""
    return "\n".join([opening, *map(asset, _SCRIPTS)]) + closing


# `data` comes beside the script, and nothing ever stops it.
_ALONE = """(() => {
'use strict';
const data = JSON.parse(document.getElementById('data').textContent), { signal } = new AbortController();"""


def _page(title: str, body: Markup, data: str) -> str:
    script = chart_script(_ALONE, "})();\n")
    style = asset("page.css")
    policy = (
        f"default-src 'none'; style-src {digest(style)}; script-src {digest(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    return Template(asset("page.html")).substitute(
        title=text(title), policy=policy, style=style, script=script, body=body, data=data
    )


def digest(source: str) -> str:
    """A style or script as the page's policy names it."""
    return f"'sha256-{b64encode(sha256(source.encode()).digest()).decode()}'"


def asset(name: str) -> str:
    """A file of this folder."""
    loader = cast("ResourceLoader", __spec__.loader)
    return loader.get_data(str(PurePath(__file__).with_name(name))).decode()
