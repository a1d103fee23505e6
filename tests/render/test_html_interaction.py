"""The HTML report under a hand: keys, pointer, menu and widths, driven in Chromium through chromedriver's own protocol."""

import json
import os
import re
import shutil
import subprocess
from urllib.request import Request, urlopen

import pytest
from html_pages import page

from vramwise.units import GIB

DRIVER = shutil.which("chromedriver")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(not (DRIVER and CHROMIUM), reason="no Chromium with chromedriver is installed")
FLAGS = (
    "--headless --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-sync "
    "--disable-component-update --window-size=1300,900"
)
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """A session of chromedriver."""

    def __init__(self, port):
        self.base = f"http://127.0.0.1:{port}"
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        options = {"binary": CHROMIUM, "args": FLAGS.split() + sandbox}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        made = self.call("/session", {"capabilities": {"alwaysMatch": wanted}})
        self.base += f"/session/{made['sessionId']}"

    def call(self, path, body=None, method=None):
        sent = None if body is None else json.dumps(body).encode()
        request = Request(self.base + path, data=sent, headers={"Content-Type": "application/json"}, method=method)
        with urlopen(request, timeout=600) as answer:
            return json.load(answer)["value"]

    def run(self, script):
        return self.call("/execute/sync", {"script": script, "args": []})

    def press(self, keys):
        found = self.call("/element", {"using": "css selector", "value": ".plot"})
        self.call(f"/element/{found[ELEMENT]}/value", {"text": keys})

    def spoken(self):
        return self.run("return document.querySelector('.plot').getAttribute('aria-valuetext')")

    def tip(self):
        return self.run("const tip = document.getElementById('tip'); return tip.hidden ? '' : tip.innerText")

    def point(self, *moves):
        """Move the mouse; a move is (x, y) in the window, or "down" and "up"."""
        actions = []
        for move in moves:
            if isinstance(move, str):
                actions.append({"type": f"pointer{move.capitalize()}", "button": 0})
            else:
                actions.append({"type": "pointerMove", "x": int(move[0]), "y": int(move[1]), "duration": 0})
        self.call("/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": actions}]})

    def complaints(self):
        return self.call("/se/log", {"type": "browser"})


def _port(process):
    """Where chromedriver listens: it chooses a free port and says so once it answers."""
    for line in process.stdout:
        found = re.search(r"started successfully on port (\d+)", line)
        if found:
            return int(found[1])
    raise AssertionError(f"chromedriver ended with code {process.wait()}")


@pytest.fixture(scope="module")
def driver():
    """chromedriver on a free port, and one session in it."""
    process = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        browser = Browser(_port(process))
        yield browser
        browser.call("", method="DELETE")
    finally:
        process.terminate()
        process.wait(300)


@pytest.fixture
def browser(driver, tmp_path):
    """The page of a small run, open; nothing may have been said on the console when the test is over."""
    html, driver.profile, driver.report = page()
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    driver.call("/url", {"url": (tmp_path / "page.html").as_uri()})
    yield driver
    assert driver.complaints() == []


def gib(size_bytes):
    return f"{size_bytes / GIB:.{2 if size_bytes < 10 * GIB else 1}f} GiB"


def test_keys_walk_through_the_run_and_it_is_spoken(browser):
    browser.press("p")
    peak = browser.report
    assert browser.spoken().startswith(f"step {peak.peak_step}, {peak.peak_phase}: ")
    assert f"{gib(peak.peak_reserved_bytes)} reserved" in browser.spoken()
    assert f"{gib(peak.peak_reserved_bytes)}" in browser.tip()
    browser.press("\ue011")  # Home
    assert browser.spoken().startswith("load: ")
    browser.press("\ue00f")  # Page Down: the next phase, where it holds the most
    first = next(mark for mark in peak.phases if mark.phase == "forward")
    assert browser.spoken().startswith(f"step 1, forward: {gib(first.peak_allocated_bytes)} allocated")
    assert "just allocated: all logits" in browser.spoken()
    browser.press("\ue010")  # End
    assert browser.spoken().startswith("step 3, optimizer: ")
    before = browser.spoken()
    browser.press("\ue012")  # left
    assert browser.spoken() != before


def test_pointing_names_the_op_and_what_is_alive(browser):
    box = browser.run(
        "const plot = document.querySelector('.plot'); plot.scrollIntoView({block: 'center'});"
        "const {x, y, width, height} = plot.getBoundingClientRect(); return {x, y, width, height}"
    )
    seen = set()
    for part in range(10, 98, 2):
        browser.point((box["x"] + box["width"] * part / 100, box["y"] + 100))
        seen |= set(re.findall(r"^all \w+|^reserved$|^spare$|^step \d, \w+", browser.tip(), re.MULTILINE))
    assert {"all logits", "all gradients", "reserved", "spare", "step 2, backward"} <= seen
    browser.point((2, 2))
    assert browser.tip() == ""


def test_dragging_zooms_in_and_a_double_click_out(browser):
    def menu():
        return browser.run("return document.querySelector('.tools select').selectedOptions[0].textContent")

    box = browser.run(
        "const {x, y, width} = document.querySelector('.plot').getBoundingClientRect(); return {x, y, width}"
    )
    left, right, y = box["x"] + 0.3 * box["width"], box["x"] + 0.6 * box["width"], box["y"] + 100
    assert menu() == "whole run"
    browser.point((left, y), "down", (right, y), "up")
    assert menu() == "a part of it"
    browser.point((left, y), "down", "up", "down", "up")
    assert menu() == "whole run"
    browser.press("+")
    assert menu() == "a part of it"
    browser.press("\ue00c")  # Escape
    assert menu() == "whole run"


def test_holes_and_blocks_of_the_segments_have_names(browser):
    places = browser.run(
        "document.getElementById('segment-map').scrollIntoView({block: 'center'});"
        "return [...document.querySelectorAll('#segment-map rect[data-at]')].map((part) => {"
        " const {x, y, width, height} = part.getBoundingClientRect(); return [x + width / 2, y + height / 2, width] })"
    )
    seen = set()
    for x, y, width in places:
        if width > 4:
            browser.point((x, y))
            seen.add(browser.tip().split(":")[0].split(" of ")[0])
    assert {"weights", "optimizer", "hole"} <= seen


@pytest.mark.parametrize("width", [360, 768, 1100, 1600])
def test_nothing_sticks_out_at_any_width(browser, width):
    browser.call("/window/rect", {"width": width, "height": 900})
    inner = browser.run("return [document.documentElement.scrollWidth, innerWidth]")
    assert inner[0] <= inner[1]
    drawn = browser.run("return document.querySelector('#timeline-chart svg').getBoundingClientRect().width")
    assert 250 < drawn < inner[1]
    browser.call("/window/rect", {"width": 1300, "height": 900})
