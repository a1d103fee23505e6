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
    categories = page_categories(profile)
    numbers = colours([*categories, *report.breakdown_bytes])
    side = element(
        "div",
        sections.findings_list(findings),
        sections.assumptions_list(assumptions, report.settings),
        class_="side",
    )
    content = element(
        "div",
        tables.timeline(profile, categories),
        element("div", tables.breakdown(report, gpu, numbers), tables.largest(profile, numbers), class_="halves"),
        tables.segments(profile),
        tables.phases(report, gpu, measured),
        class_="content",
    )
    body = together(
        sections.header(title, verdict, subtitle, expected_error, state or sections.outcome(report, gpu)),
        sections.ways_out(ways_out),
        advice,
        sections.memory_bar(report, gpu, numbers),
        sections.figures(report, gpu, further),
        element("div", content, side, class_="layout"),
    )
    return _page(title, body, page_data(profile, report, gpu, measured))


def _page(title: str, body: Markup, data: str) -> str:
    script = "(() => {\n'use strict';\n" + "\n".join(asset(name) for name in _SCRIPTS) + "})();\n"
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
