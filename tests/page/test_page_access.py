"""The page for everybody: axe finds nothing, in both themes and on a phone; a keyboard alone does all of it."""

import json
import os
from pathlib import Path

import pytest
from page_reader import EXAMPLES, NEEDS_PAGE, ROOT, SMALL, TITLE

# Where `npm install --no-save axe-core` puts it, or what the variable names.
AXE = Path(os.environ.get("AXE_CORE") or ROOT / "node_modules" / "axe-core" / "axe.min.js")
needs_axe = pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not installed: make test-page")
pytestmark = NEEDS_PAGE
VIOLATIONS = """
const done = arguments[arguments.length - 1];
axe.run(document).then(({ violations }) => done(violations.map(({ id, nodes }) =>
  `${id}: ${nodes.slice(0, 3).map((one) => one.html.slice(0, 160)).join(' | ')}`)), (error) => done([String(error)]));
"""
TAB, SPACE, RIGHT, ENTER = "\ue004", "\ue00d", "\ue014", "\ue007"


@pytest.fixture(autouse=True)
def _silent(reader):
    yield
    assert reader.browser.complaints() == []
    assert reader.run("return document.title") == TITLE


def looks(reader, theme, width):
    """The reader's theme and window."""
    size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": False}
    feature = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    for command, asked in (("setDeviceMetricsOverride", size), ("setEmulatedMedia", feature)):
        reader.browser.call("/goog/cdp/execute", {"cmd": f"Emulation.{command}", "params": asked})


def violations(reader):
    return reader.browser.call("/execute/async", {"script": VIOLATIONS, "args": []})


@needs_axe
def test_axe_finds_nothing(reader):
    reader.run(AXE.read_text(encoding="utf-8"))
    assert violations(reader) == []
    reader.paste(SMALL.replace("micro_batch_size: 8", "micro_batch_size: 48"))
    reader.weighed()
    reader.until(
        "return document.querySelector('#timeline-chart svg.drawn') && !document.getElementById('cards').hidden"
    )
    reader.until("return !document.querySelector('.stale')")
    for what in ("picture", "diagnosis"):
        if what == "diagnosis":
            reader.drop("train.log", (EXAMPLES / "picture.log").read_text(encoding="utf-8"))
            reader.until("return document.querySelector('#diagnosis #close')")
        for theme, width in (("light", 1360), ("dark", 1360), ("light", 390), ("dark", 390)):
            looks(reader, theme, width)
            assert violations(reader) == [], (what, theme, width)
    looks(reader, "light", 1360)


def pressed(reader, *keys):
    """Keys, wherever the focus is."""
    actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
    reader.browser.call("/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})


def focused(reader):
    return reader.run(
        "const one = document.activeElement; return one.id || one.textContent.trim().slice(0, 60) || one.tagName"
    )


def tab_to(reader, wanted):
    """Press Tab until it is there; each stop on the way has an outline to be seen by."""
    for _ in range(60):
        pressed(reader, TAB)
        outline = "const shown = getComputedStyle(document.activeElement.closest('.editor') ?? document.activeElement);"
        assert reader.run(f"{outline} return shown.outlineStyle") != "none", focused(reader)
        if wanted in focused(reader):
            return
    raise AssertionError(f"{wanted} was not reached")


def test_a_keyboard_alone_does_all_of_it(reader):
    reader.paste(SMALL.replace("bf16: auto", "bf16: auto\nval_set_size: 0.1\neval_batch_size: 2"))
    reader.weighed()
    reader.run("document.getElementById('gpu').focus()")
    tab_to(reader, "text")
    pressed(reader, TAB)
    assert focused(reader) == "save"  # the editor lets go of the keyboard
    tab_to(reader, "knob-micro_batch_size")
    before = reader.text()
    pressed(reader, RIGHT)
    reader.until(f"return document.getElementById('headline').textContent !== {before!r}")
    tab_to(reader, "keep")
    pressed(reader, ENTER)
    reader.until("return document.getElementById('text').value.includes('micro_batch_size: 12\\n')")
    reader.weighed()
    tab_to(reader, "Apply fix")
    before = reader.config()
    pressed(reader, SPACE)
    reader.until(f"return document.getElementById('text').value !== {json.dumps(before)}")
    reader.until("return document.querySelector('#timeline-chart svg.drawn')")
    reader.browser.press("p")
    assert "reserved" in reader.browser.spoken()
