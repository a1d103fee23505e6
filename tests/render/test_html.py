"""The HTML report: complete and well-formed without a browser, safe whatever strangers wrote, small; quiet in Chromium."""

import json
import os
import re
import shutil
import subprocess
from base64 import b64encode
from hashlib import sha256

import pytest
from html_pages import page, training_run

from installed import NO_BROWSER
from outlines import Outline
from vramwise.render.html.data import KNOWN, colours
from vramwise.render.html.markup import element, printable
from vramwise.timeline import Action, Event, Phase, PhasePeak, Tag, Timeline
from vramwise.types import START, Edit, Finding, Fix, GpuSpec, Severity
from vramwise.units import GIB


def data_of(html):
    """The JSON beside the script."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html)[1])


def finding(severity, rule, message="message", title="Do it"):
    fix = Fix(title=title, safe=False, edits=(Edit(op="set", key="a", value=1),))
    return Finding(rule=rule, severity=severity, message=message, key="a", place=START, fix=fix)


def test_the_page_is_well_formed_and_says_everything_in_text():
    html, _, report = page(findings=[finding(Severity.INFO, "a-note"), finding(Severity.ERROR, "an-error")])
    outline = Outline(html)
    text = " ".join(outline.texts)
    ids = outline.values("id")
    assert len(ids) == len(set(ids))
    assert set(outline.values("aria-labelledby")) <= set(ids)
    assert text.index("needs 9 GiB: fits") < text.index("Memory over the run")
    assert text.index("an-error") < text.index("a-note")
    for word in ("Expected error: 3 %", "every sample is as long", "weights", "reserved, not in use", "outside torch"):
        assert word in text
    assert f"{report.peak_reserved_bytes / GIB:.1f} GiB" in text
    assert "torch's defaults" in text


def test_the_page_needs_no_network():
    html, _, _ = page()
    assert set(re.findall(r"https?://[^\s\"'<)]+", html)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"url\((?!#)|@import|\bsrc=|<link", html)


def test_only_the_pages_own_script_and_style_may_run():
    outline = Outline(page()[0])
    policy = next(value for value in outline.values("content") if value.startswith("default-src"))
    for kind in ("script", "style"):
        source = outline.raw[kind][-1]
        assert f"'sha256-{b64encode(sha256(source.encode()).digest()).decode()}'" in policy
    assert "unsafe" not in policy
    assert not outline.values("style")
    assert not [name for _, name, _ in outline.attributes if name.startswith("on")]


def test_the_data_gives_the_profile_back_exactly():
    html, profile, _ = page()
    data = data_of(html)
    at = reserved = 0
    totals = [0] * len(data["categories"])
    rows = zip(profile.moments, data["at"], data["reserved"], *data["series"], strict=True)
    for moment, at_step, reserved_step, *steps in rows:
        at += at_step
        reserved += reserved_step
        totals = [total + step for total, step in zip(totals, steps, strict=True)]
        assert (at, reserved * data["unit"]) == (moment.event, moment.reserved_bytes)
        shown = {name: total * data["unit"] for (name, _), total in zip(data["categories"], totals, strict=True)}
        meant = dict(zip(profile.categories, moment.category_bytes, strict=True))
        assert shown == {name: meant[name] for name in shown}
        assert sum(shown.values()) == moment.allocated_bytes
    runs = [flat for *_, flat in data["segments"]]
    assert sum(sum(flat[1::4]) for flat in runs) * data["unit"] == profile.moments[profile.focus].reserved_bytes
    assert [name for name, _ in data["categories"]] == [name for name in KNOWN if name in shown]


EVIL = "</script></style><script>document.title='HACKED'</script><img src=x onerror=\"document.title='HACKED'\">'\"&{}$title"


def evil_page():
    """Every text that may come from a stranger tries to get out."""
    gpu = GpuSpec(name=EVIL, vendor="nvidia", memory_bytes=8 * GIB, capability=None, bf16=True, fp8=True)
    run = training_run(name=EVIL, phase=EVIL)
    run = Timeline(events=run.events, tags=[Tag(EVIL + tag.category, tag.label) for tag in run.tags], phases=run.phases)
    found = [finding(Severity.ERROR, EVIL, EVIL, EVIL)]
    measured = [PhasePeak(step=1, phase=run.phases[1].name, peak_allocated_bytes=GIB, peak_reserved_bytes=GIB)]
    words = dict.fromkeys(("title", "verdict", "subtitle", "expected_error", "settings"), EVIL)
    return page(run, gpu=gpu, findings=found, measured=measured, assumptions=[EVIL], **words)[0]


def test_no_text_becomes_markup():
    html = evil_page()
    outline = Outline(html)
    assert outline.tags.count("script") == 2
    assert outline.tags.count("style") == 1
    assert "img" not in outline.tags
    assert not [name for _, name, _ in outline.attributes if name.startswith("on")]
    raw = re.search(r'id="data">(.*?)</script>', html)[1]
    assert not set(raw) & set("<>&")
    assert json.loads(raw)["labels"][0][1].startswith("</script>")
    # the evil text itself is there, as text
    assert sum(EVIL[:20] in text for text in outline.texts) >= 8


@pytest.mark.parametrize("text", ["a\x00b", "a\x1b[31mb", "a\u202eb", "a\udcffb", "a\x7fb", "a\u2028b"])
def test_what_cannot_be_printed_is_replaced(text):
    html = page(training_run(name=text), title=text, assumptions=[text])[0]
    html.encode()
    assert text not in html
    assert printable(text) in html
    assert printable(text).isprintable()
    assert re.search(r"\\[xu]\w\w", printable(text))


def test_endless_texts_are_cut():
    html = page(verdict="x" * 100_000, assumptions=["y" * 100_000])[0]
    assert len(html) < 200_000


def test_attributes_are_escaped():
    assert (
        element("p", aria_label='"><b>', class_="x", hidden=False)
        == '<p aria-label="&quot;&gt;&lt;b&gt;" class="x"></p>'
    )


def test_a_long_run_stays_small():
    run = training_run(steps=300, layers=60)
    assert len(run.events) > 100_000
    html, profile, _ = page(run)
    assert len(html) < 1_000_000
    data = re.search(r'id="data">(.*?)</script>', html)[1]
    assert len(html) - len(data) - len(re.search("<main>.*</main>", html, re.DOTALL)[0]) < 60_000
    assert len(profile.moments) < 10_000


def test_equal_steps_are_one_row():
    run = training_run(steps=1)
    events = list(run.events)
    # twice more the same step, but for its number: nothing is allocated that is not freed
    for step in (2, 3):
        events += [Event(Action.PHASE, 0, 0, 0, len(run.phases) + step - 2)]
    phases = [*run.phases, Phase("idle", 2), Phase("idle", 3)]
    outline = Outline(page(Timeline(events=events, tags=run.tags, phases=phases))[0])
    assert "2–3" in outline.texts


def test_measured_marks_stand_beside_predicted_ones():
    _, _, report = page()
    peak = report.phases[1]
    measured = PhasePeak(
        step=peak.step,
        phase=peak.phase,
        peak_allocated_bytes=peak.peak_allocated_bytes,
        peak_reserved_bytes=peak.peak_reserved_bytes * 2,
    )
    html = page(measured=[measured])[0]
    assert "-50.0 %" in html
    assert data_of(html)["measured"] == [[1, "forward", peak.peak_allocated_bytes, 2 * peak.peak_reserved_bytes]]


def test_out_of_memory_is_told_with_its_request():
    html, profile, report = page(limit_bytes=6 * GIB)
    assert report.out_of_memory is not None
    assert 'class="verdict bad"' in html
    assert f"When memory ran out: step {report.out_of_memory.step}, {report.out_of_memory.phase}" in html
    assert data_of(html)["failed"][1] == profile.failed.size_bytes
    assert [line[1] for line in data_of(html)["lines"]] == [
        "RTX 4090: 24.0 GiB less 0.5 GiB outside torch",
        "limit: 6.0 GiB",
    ]


def test_outcome_follows_the_card():
    assert 'class="verdict good"' in page()[0]
    assert 'class="verdict open"' in page(gpu=None)[0]
    small = GpuSpec(name="small", vendor="nvidia", memory_bytes=GIB, capability=None, bf16=True, fp8=True)
    html = page(gpu=small)[0]
    assert 'class="verdict bad"' in html
    assert "Missing" in html


def test_a_run_of_nothing_is_a_page_too():
    outline = Outline(page(Timeline(events=[], tags=[], phases=[]))[0])
    assert "Nothing was allocated." in outline.texts


def test_known_categories_keep_their_colours_and_strangers_get_others():
    numbers = colours(["mystery", "weights", "recorded"])
    assert numbers == {"weights": 0, "mystery": len(KNOWN), "recorded": len(KNOWN) + 1}


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason=NO_BROWSER)


def in_chromium(html, folder):
    """Open the page: the document after its script has run, and what the console got."""
    (folder / "page.html").write_text(html, encoding="utf-8")
    flags = "--headless --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-sync"
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    command = [
        CHROMIUM,
        *flags.split(),
        *sandbox,
        "--disable-component-update",
        f"--user-data-dir={folder / 'profile'}",
    ]
    command += ["--enable-logging=stderr", "--window-size=1200,900", "--dump-dom", (folder / "page.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@needs_chromium
def test_the_charts_are_drawn_and_the_console_stays_empty(tmp_path):
    document, console = in_chromium(page(limit_bytes=6 * GIB)[0], tmp_path)
    assert console == []
    chart = re.search(r'<div id="timeline-chart".*?</svg>', document, re.DOTALL)[0]
    drawn = set(re.findall(r'class="area (k\d+)"', chart))
    assert drawn >= {f"k{KNOWN.index(name)}" for name in ("weights", "activations", "logits")}
    assert 'class="reserved"' in chart
    assert "out of memory:" in chart
    segments = re.search(r'<div id="segment-map".*?</svg>', document, re.DOTALL)[0]
    assert len(re.findall("<rect", segments)) >= 8


@needs_chromium
def test_strangers_texts_run_nothing_in_a_browser(tmp_path):
    document, console = in_chromium(evil_page(), tmp_path)
    assert console == []
    assert "<title>HACKED" not in document
    assert "<img" not in document
    assert '<svg class="drawn"' in document


@needs_chromium
def test_a_foreign_script_would_be_stopped_and_seen(tmp_path):
    """The two tests above could not fail if Chromium's complaints did not arrive here."""
    html = page()[0].replace("</main>", "</main><script>document.title = 'HACKED'</script>")
    document, console = in_chromium(html, tmp_path)
    assert "Content Security Policy" in " ".join(console)
    assert "<title>HACKED" not in document


def test_a_run_that_fits_only_by_giving_caches_back_is_neither_good_nor_bad():
    from vramwise.facts.gpus import find_gpu
    from vramwise.render.html.sections import outcome
    from vramwise.timeline import MemoryReport

    gpu = find_gpu("rtx-4090")
    report = MemoryReport(
        peak_allocated_bytes=1,
        peak_reserved_bytes=gpu.memory_bytes + 1,
        capacity_bytes=gpu.memory_bytes,
        outside_bytes=0,
        breakdown_bytes={},
        peak_step=1,
        peak_phase="backward",
        phases=(),
        retries=3,
        out_of_memory=None,
        settings="",
    )
    assert outcome(report, gpu) == "open"
