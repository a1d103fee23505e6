"""The page as a newcomer meets it: an example, a pasted log, colours, remedies in seconds, errors with one fix."""

import json
import time

import pytest
from page_reader import EXAMPLES, NEEDS_PAGE, SMALL, TITLE

pytestmark = NEEDS_PAGE
EXAMPLE, LOG = (EXAMPLES / name for name in ("picture.yml", "picture.log"))
LARGE = SMALL.replace("micro_batch_size: 8", "micro_batch_size: 64")
PASTE = """
const data = new DataTransfer();
data.setData('text/plain', %s);
const event = new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true });
document.getElementById('text').dispatchEvent(event);
return event.defaultPrevented;
"""
LABELS = """
return [...document.querySelectorAll('button')].filter((one) => one.checkVisibility())
  .map((one) => one.getAttribute('aria-label') ?? one.textContent);
"""
LOOKED = "return document.documentElement.dataset.state === 'looked'"
DIAGNOSED = "return document.querySelector('#diagnosis #close')"


@pytest.fixture(autouse=True)
def _silent(reader):
    yield
    assert reader.browser.complaints() == []
    assert reader.run("return document.title") == TITLE


@pytest.fixture
def fresh(reader):
    """The page, just opened."""
    reader.open()
    reader.until(LOOKED)
    return reader


def paste(reader, text):
    """Paste with the clipboard; whether the page took it."""
    return reader.run(PASTE % json.dumps(text))


def shown(reader, selector):
    return reader.run(f"return Boolean(document.querySelector('{selector}')?.checkVisibility())")


def test_it_opens_on_an_example_with_its_verdict(fresh):
    assert fresh.config() == EXAMPLE.read_text(encoding="utf-8")
    assert fresh.text().startswith("Does not fit: ")
    assert "example" in fresh.text("#example")
    assert shown(fresh, "#example")
    assert shown(fresh, "#glance .memory-bar")


def test_a_config_that_is_pasted_takes_the_place_of_the_example(fresh):
    assert paste(fresh, SMALL)
    assert fresh.config() == SMALL
    fresh.until("return !document.getElementById('verdict').classList.contains('stale')")
    assert not shown(fresh, "#example")
    # Into the reader's own text it is pasted as everywhere.
    assert not paste(fresh, "val_set_size: 0.1\neval_batch_size: 2\n")


@pytest.mark.parametrize("how", ["pasted", "typed"])
def test_a_log_goes_to_the_diagnosis(fresh, how):
    log = LOG.read_text(encoding="utf-8")
    if how == "pasted":
        assert paste(fresh, log)
    else:
        fresh.paste(log)
    fresh.until(DIAGNOSED)
    assert "Out of memory in the loss" in fresh.text("#diagnosis .verdict")
    # The example is not the config of that run: nothing of it is left.
    assert fresh.config() == ""
    assert fresh.text().startswith("Paste the config of this run")
    assert not [one for one in ("#what-if", "#findings", "#search", "#cards", "#gutter .error") if shown(fresh, one)]
    # With its config the diagnosis says what to change there.
    fresh.paste(EXAMPLE.read_text(encoding="utf-8"))
    fresh.until("return document.querySelector('#diagnosis .apply')")
    fresh.click("#diagnosis .apply")
    fresh.until("return document.getElementById('text').value.includes('liger_fused_linear_cross_entropy: true')")
    fresh.click("#close")
    assert not shown(fresh, "#diagnosis")


def test_a_log_leaves_the_readers_config_alone(fresh):
    fresh.paste(SMALL)
    assert paste(fresh, LOG.read_text(encoding="utf-8"))
    fresh.until(DIAGNOSED)
    assert fresh.config() == SMALL
    assert shown(fresh, "#what-if")


def test_a_text_that_cannot_be_read_leaves_no_sliders_behind(reader):
    reader.paste(SMALL)
    reader.paste("base_model: x\nadapter: [")
    assert reader.text().startswith("Line 2: ")
    assert shown(reader, "#gutter .error")
    assert not [one for one in ("#what-if", "#findings", "#search", "#cards") if shown(reader, one)]
    assert reader.text("#trainer") == ""


def test_the_config_is_coloured_and_still_the_same_text(reader):
    text = '# note\nbase_model: Qwen/Qwen2.5-0.5B # here\nflag: true\nrate: 2e-4\nname: "a # b"\nlist: [1, no]\nsome: |\n  x: 1\n'
    reader.paste(text)
    kinds = "return [...document.querySelectorAll('#painted span')].map((one) => [one.className, one.textContent])"
    assert reader.run(kinds) == [
        ["comment", "# note"],
        *(["key", "base_model"], ["comment", "# here"]),
        *(["key", "flag"], ["word", "true"]),
        *(["key", "rate"], ["number", "2e-4"]),
        *(["key", "name"], ["string", '"a # b"']),
        *(["key", "list"], ["mark", "["], ["number", "1"], ["mark", ","], ["word", "no"], ["mark", "]"]),
        *(["key", "some"], ["mark", "|"], ["string", "  x: 1"]),
        ["string", ""],
    ]
    assert reader.text("#painted") == text + "\n"
    huge = SMALL + "# x\n" * 40_000
    reader.paste(huge)
    assert not reader.run("return document.getElementById('text').classList.contains('painted')")
    assert reader.text("#painted").strip() == ""


def test_what_makes_it_fit_is_there_within_three_seconds_and_then_refined(reader):
    reader.paste(SMALL)
    reader.until("return document.querySelector('#timeline-chart svg.drawn') && !document.querySelector('.stale')")
    reader.paste(LARGE)
    begun = time.monotonic()
    reader.until("return document.querySelector('#remedy .says')")
    assert time.monotonic() - begun < 3
    assert reader.text("#remedy").startswith("Fits with: ")
    assert "Looking for a faster change" in reader.text("#remedy")
    assert shown(reader, "#remedy progress")
    reader.until("return !document.querySelector('#remedy progress')")
    reader.click("#remedy button")
    reader.until("return !document.getElementById('headline').textContent.startsWith('Does not fit')")
    reader.until("return document.getElementById('remedy').hidden")


def test_a_run_that_stops_is_red_and_one_button_fixes_it(reader):
    reader.paste((EXAMPLES / "mistakes.yml").read_text(encoding="utf-8"))
    assert reader.text() == "Will not start: 2 errors"
    assert reader.run("return document.getElementById('verdict').classList.contains('bad')")
    assert reader.run("return document.querySelectorAll('#stops li').length") == 2
    assert "Go to line 23" in reader.text("#stops")
    assert reader.text("#fix-errors") == "Fix 2 errors"
    assert not shown(reader, "#remedy")
    reader.click("#fix-errors")
    reader.until("return document.getElementById('stops').hidden")
    assert "optimizer: adamw_8bit" in reader.config()
    assert "Will not start" not in reader.text()


def test_variants_are_readable_on_a_phone_and_a_search_can_be_stopped(reader):
    reader.paste(LARGE)
    reader.click("#fit")
    reader.until("return document.getElementById('stop').checkVisibility()")
    reader.click("#stop")
    reader.until("return !document.getElementById('fit').disabled")
    assert not shown(reader, "#fit-progress")
    reader.click("#fit")
    reader.until("return document.getElementById('take')")
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": False}
    reader.browser.call("/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": size})
    assert reader.run(
        "const table = document.querySelector('#variants .scroll'); return table.scrollWidth <= table.clientWidth"
    )
    names = reader.run(
        "return [...document.querySelectorAll('#variants tbody tr:first-child td')].filter((one) => one.textContent)"
        ".map((one) => getComputedStyle(one, '::before').content)"
    )
    assert names[:4] == ['"reserved"', '"spare"', '"a step"', '"speed"']
    reader.browser.call("/goog/cdp/execute", {"cmd": "Emulation.clearDeviceMetricsOverride", "params": {}})


def test_no_two_buttons_have_one_name_and_two_meanings(reader):
    reader.paste(LARGE)
    reader.until("return document.querySelector('#remedy button')")
    reader.click("#fit")
    reader.until("return document.getElementById('take')")
    reader.drop("train.log", LOG.read_text(encoding="utf-8"))
    reader.until("return document.querySelector('#diagnosis .apply')")
    labels = [one for one in reader.run(LABELS) if not one.startswith("Go to line ")]
    assert {"Apply this change", "Apply this setup", "Apply slider values", "Close diagnosis"} <= set(labels)
    assert len(labels) == len(set(labels))
