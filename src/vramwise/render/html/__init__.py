"""The report as one HTML file: memory timeline, segments, findings and figures; no network, no dependencies.

The text is complete without the script, which draws the two charts from the embedded data. Text from outside (paths,
labels, messages) passes through `markup` or the JSON of `data`, and the page's content security policy allows only the
scripts and styles shipped here. `plain_page` is a page without a script.
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
from vramwise.render.html.data import colours, page_categories, page_data
from vramwise.render.html.markup import Markup, element, text, together
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
    """Return the whole page. `measured`: peaks of a real run, shown beside the report and in the chart.

    `verdict`: the answer, then its reasons. `state`: overrides the state that the report implies. `ways_out`: what
    would make the run fit. `further`: figures beside those of memory. `advice`: what to change after a failure, shown
    below the verdict.
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
    """Return the card as a bar, and the key figures. `categories`: all categories with a colour in the charts below."""
    numbers = colours([*categories, *report.breakdown_bytes])
    return sections.memory_bar(report, gpu, numbers), sections.figures(report, gpu, further)


def picture(
    profile: Profile, report: MemoryReport, gpu: GpuSpec | None, measured: Sequence[PhasePeak] = ()
) -> tuple[Markup | None, ...]:
    """Return the placeholders of both charts and the equivalent tables; the script draws `page_data` there."""
    categories = page_categories(profile)
    numbers = colours([*categories, *report.breakdown_bytes])
    return (
        tables.timeline(profile, categories),
        element("div", tables.breakdown(report, gpu, numbers), tables.largest(profile, numbers), class_="halves"),
        tables.segments(profile),
        tables.phases(report, gpu, measured),
    )


def chart_script(opening: str, closing: str) -> str:
    """Return the script that draws both charts from `data`.

    `opening` defines `data`, and `signal`, which stops the script.
    """
    return "\n".join([opening, *map(asset, _SCRIPTS)]) + closing


# `data` is embedded beside the script, and nothing stops it.
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
    """Return the hash of a style or script as the content security policy expects it."""
    return f"'sha256-{b64encode(sha256(source.encode()).digest()).decode()}'"


def asset(name: str) -> str:
    """Return the content of a file in this folder."""
    loader = cast("ResourceLoader", __spec__.loader)
    return loader.get_data(str(PurePath(__file__).with_name(name))).decode()


def plain_page(title: str, body: Markup, own_style: str = "") -> str:
    """Return the whole file. `own_style` names a style file that follows the shared style."""
    style = asset("page.css") + (f"\n{asset(own_style)}" if own_style else "")
    policy = f"default-src 'none'; style-src {digest(style)}; base-uri 'none'; form-action 'none'"
    head = together(
        Markup('<meta charset="utf-8">'),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name_="color-scheme", content="light dark"),
        element("title", title),
        Markup(f"<style>{style}</style>"),
    )
    return f'<!doctype html>\n<html lang="en">\n<head>{head}</head>\n<body>{element("main", body)}</body>\n</html>\n'
