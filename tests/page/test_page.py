"""The built page in Chromium, as a reader uses it. Skipped where there is no browser, or `make page` has not been run."""

import base64
import json
import threading
import time
from pathlib import Path

import pytest

from browsers import needs_browser, started
from vramwise.page.serving import make_page_server

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "dist" / "page"
pytestmark = [needs_browser, pytest.mark.skipif(not (FOLDER / "sw.js").is_file(), reason="`make page` was not run")]
PATIENCE = 240  # seconds: Python starts in the browser, on a machine that may be busy
MISTAKES = (ROOT / "examples" / "mistakes.yml").read_text(encoding="utf-8")
# Small, so that a search takes seconds.
SMALL = """base_model: Qwen/Qwen2.5-0.5B
adapter: lora
lora_r: 8
lora_target_linear: true
datasets: [{path: tatsu-lab/alpaca, type: alpaca}]
sequence_len: 2048
sample_packing: true
pad_to_sequence_len: true
micro_batch_size: 8
gradient_accumulation_steps: 1
optimizer: adamw_torch_fused
learning_rate: 0.0002
bf16: auto
attn_implementation: flash_attention_2
gradient_checkpointing: true
"""
HOSTILE = "<img src=x onerror=document.title='ran'><script>document.title='ran'</script>"
DROP = """
const [name, text] = [%s, %s];
const files = new DataTransfer();
files.items.add(new File([text], name));
dispatchEvent(new DragEvent('drop', { dataTransfer: files, bubbles: true, cancelable: true }));
"""


class Reader:
    """A hand at the page."""

    def __init__(self, browser, address):
        self.browser, self.address = browser, address

    def open(self, address=None):
        self.browser.call("/url", {"url": "about:blank"})
        self.browser.call("/url", {"url": address or self.address})
        self.until("return document.documentElement.dataset.state !== undefined")

    def run(self, script):
        return self.browser.run(script)

    def until(self, script):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found = self.run(script)
            if found:
                return found
            time.sleep(0.1)
        raise AssertionError(f"{script}\nnever came; the page says: {self.run('return document.body.innerText')[:800]}")

    def paste(self, text):
        """The text in place of what is there, and the verdict on it."""
        self.run(
            "delete document.documentElement.dataset.state;"
            f"const area = document.getElementById('text'); area.value = {json.dumps(text)};"
            "area.dispatchEvent(new Event('input', { bubbles: true }))"
        )
        self.until("return document.documentElement.dataset.state === 'looked'")

    def click(self, selector):
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def text(self, selector="#headline"):
        return self.run(f"return document.querySelector({json.dumps(selector)}).textContent")

    def config(self):
        return self.run("return document.getElementById('text').value")

    def slide(self, name, places, event="input"):
        self.run(
            f"const knob = document.getElementById('knob-{name}'); knob.value = {places};"
            f"knob.dispatchEvent(new Event('{event}', {{ bubbles: true }}))"
        )


@pytest.fixture(scope="module")
def served():
    server = make_page_server(FOLDER, 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def reader(served, tmp_path_factory):
    with started() as browser:
        downloads = tmp_path_factory.mktemp("downloads")
        asked = {"cmd": "Browser.setDownloadBehavior", "params": {"behavior": "allow", "downloadPath": str(downloads)}}
        browser.call("/goog/cdp/execute", asked)
        hand = Reader(browser, served.address)
        hand.downloads = downloads
        hand.open()
        yield hand


@pytest.fixture(autouse=True)
def _silent(reader):
    """Nothing may be said on the console when a test is over."""
    yield
    assert reader.browser.complaints() == []
    assert reader.run("return document.title") == "vramwise: does it fit?"


def test_paste_says_at_once_whether_it_fits_and_marks_the_lines(reader):
    reader.paste(MISTAKES)
    assert "fit" in reader.text()
    assert reader.run("return document.querySelectorAll('#gutter .error, #gutter .warning').length") >= 3
    assert "batch-size-set" in reader.text("#found")
    assert reader.text("#trainer") != ""


def test_one_click_mends(reader):
    reader.paste(MISTAKES)
    reader.click("#found [data-rule=eval-batch-differs] .act button")
    reader.until("return document.getElementById('text').value.includes('eval_batch_size: 4')")
    reader.until("return !document.querySelector('#found [data-rule=eval-batch-differs]')")
    reader.click("#undo")
    assert reader.config() == MISTAKES


def test_sliders_answer_while_they_move_and_write_what_they_show(reader):
    reader.paste(SMALL)
    before = reader.text()
    reader.slide("micro_batch_size", 0)
    reader.until(f"return document.getElementById('headline').textContent !== {json.dumps(before)}")
    assert reader.config() == SMALL
    reader.slide("micro_batch_size", 0, "change")
    reader.until("return !document.getElementById('verdict').classList.contains('stale')")
    shown = reader.text()
    reader.click("#keep")
    reader.until("return document.getElementById('text').value.includes('micro_batch_size: 1\\n')")
    reader.until("return !document.getElementById('verdict').classList.contains('stale')")
    assert reader.text() == shown


def test_the_timeline_is_drawn_and_redrawn(reader):
    reader.paste(SMALL)
    reader.until("return document.querySelector('#timeline-chart svg.drawn') && document.querySelector('#on-cards li')")
    reader.browser.press("p")
    assert "reserved" in reader.browser.spoken()
    reader.paste(SMALL.replace("micro_batch_size: 8", "micro_batch_size: 2"))
    reader.until("return document.querySelector('#timeline-chart svg.drawn')")


def test_fit_finds_and_writes_a_variant(reader):
    reader.paste(SMALL.replace("micro_batch_size: 8", "micro_batch_size: 64"))
    assert reader.text().startswith("Does not fit")
    reader.click("#fit")
    reader.until("return document.getElementById('take')")
    assert reader.run("return document.querySelectorAll('#fitted .frontier').length") > 0
    reader.click("#take")
    reader.until("return !document.getElementById('headline').textContent.startsWith('Does not fit')")
    assert "micro_batch_size: 64" not in reader.config()


def test_downloads_are_the_text_and_a_whole_report(reader):
    reader.paste(SMALL)
    reader.click("#save")
    reader.click("#report")
    for name, start in (("config.yml", SMALL), ("config-report.html", "<!doctype html>")):
        end = time.monotonic() + PATIENCE
        while not (reader.downloads / name).exists() and time.monotonic() < end:
            time.sleep(0.2)
        assert (reader.downloads / name).read_text(encoding="utf-8").startswith(start)


def test_a_dropped_log_is_explained_beside_its_config(reader):
    log = (ROOT / "examples" / "picture.log").read_text(encoding="utf-8")
    reader.paste(SMALL.replace("sequence_len: 2048", "sequence_len: 8192"))
    reader.run(DROP % (json.dumps("train.log"), json.dumps(log)))
    reader.until("return !document.getElementById('diagnosis').hidden")
    assert "Out of memory in the loss" in reader.text("#diagnosis")
    assert "sequence_len: 8192" in reader.config()


def test_a_dropped_config_takes_the_place_of_the_text(reader):
    reader.run(DROP % (json.dumps("mine.yml"), json.dumps(SMALL)))
    reader.until(f"return document.getElementById('text').value === {json.dumps(SMALL)}")


def test_start_from_a_few_words(reader):
    reader.click("#start button")
    reader.until("return document.getElementById('text').value.includes('base_model: Qwen/Qwen3-8B')")
    reader.until("return /GiB/.test(document.getElementById('headline').textContent)")


def test_hostile_words_are_shown_and_run_nothing(reader):
    hostile = SMALL.replace("adamw_torch_fused", json.dumps(HOSTILE)).replace("tatsu-lab/alpaca", json.dumps(HOSTILE))
    reader.paste(hostile)
    reader.until("return document.querySelector('#timeline-chart svg.drawn')")
    reader.run(
        DROP % (json.dumps("x.log"), json.dumps(f"{HOSTILE}\ntorch.OutOfMemoryError: CUDA out of memory {HOSTILE}"))
    )
    reader.until("return !document.getElementById('diagnosis').hidden")
    assert reader.run("return document.querySelectorAll('main img, main script').length") == 0
    reader.run(DROP % (json.dumps("x.pickle"), json.dumps("cos\nsystem\n(S'id'\ntR.")))
    reader.until("return document.getElementById('said').textContent.includes('snapshot')")


def test_a_link_carries_the_config_and_its_settings(reader):
    reader.run(
        "document.getElementById('gpu').value = 'T4'; document.getElementById('gpu').dispatchEvent(new Event('change'))"
    )
    reader.paste(SMALL)
    reader.click("#share")
    link = reader.until("return location.hash.startsWith('#c=') && location.href")
    verdict = reader.text()
    reader.open(link)
    reader.until("return /GiB/.test(document.getElementById('headline').textContent)")
    assert reader.config() == SMALL
    assert reader.text() == verdict
    assert "T4" in verdict


def test_it_loads_again_without_a_network(reader, served):
    reader.open()
    reader.until("return document.documentElement.dataset.offline === 'yes'")
    served.shutdown()
    served.socket.close()
    reader.open()
    reader.paste(SMALL)
    assert "GiB" in reader.text()


def test_narrow_and_wide_nothing_hangs_over_the_edge(reader):
    for width in (390, 1360):
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        reader.browser.call("/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": size})
        reader.until("return document.querySelector('#timeline-chart svg.drawn')")
        assert reader.run("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    shot = reader.browser.call("/screenshot")
    assert base64.b64decode(shot).startswith(b"\x89PNG")
