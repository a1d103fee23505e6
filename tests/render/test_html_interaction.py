"""The HTML report under a hand: keys, pointer, menu and widths, driven in Chromium through chromedriver's own protocol."""

import re

import pytest
from html_pages import page

from browsers import needs_browser, started
from vramwise.units import GIB

pytestmark = needs_browser


@pytest.fixture(scope="module")
def driver():
    with started() as browser:
        yield browser


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
