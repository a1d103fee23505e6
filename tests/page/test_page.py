"""The built page in Chromium, as a reader uses it. Skipped where there is no browser, or `make page` has not been run."""

import base64
import json

import pytest
from page_reader import EXAMPLES, NEEDS_PAGE, SMALL, TITLE

pytestmark = NEEDS_PAGE
MISTAKES = (EXAMPLES / "mistakes.yml").read_text(encoding="utf-8")
HOSTILE = "<img src=x onerror=document.title='ran'><script>document.title='ran'</script>"


@pytest.fixture(autouse=True)
def _silent(reader):
    """Nothing may be said on the console when a test is over."""
    yield
    assert reader.browser.complaints() == []
    assert reader.run("return document.title") == TITLE


def test_paste_says_at_once_whether_it_fits_and_marks_the_lines(reader):
    reader.paste(MISTAKES)
    assert reader.text() == "Will not start: 2 errors"
    assert reader.run("return document.querySelectorAll('#gutter .error, #gutter .warning').length") >= 3
    assert "batch-size-set" in reader.text("#found")
    assert reader.text("#trainer") != ""


def test_one_click_fixes(reader):
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
        assert reader.downloaded(name).startswith(start)


def test_a_dropped_log_is_explained_beside_its_config(reader):
    log = (EXAMPLES / "picture.log").read_text(encoding="utf-8")
    reader.paste(SMALL.replace("sequence_len: 2048", "sequence_len: 8192"))
    reader.drop("train.log", log)
    reader.until("return document.querySelector('#diagnosis #close')")
    assert "Out of memory in the loss" in reader.text("#diagnosis")
    assert "sequence_len: 8192" in reader.config()


def test_a_dropped_config_takes_the_place_of_the_text(reader):
    reader.drop("mine.yml", SMALL)
    reader.until(f"return document.getElementById('text').value === {json.dumps(SMALL)}")


def test_start_from_a_few_words(reader):
    reader.click("#start button")
    reader.until("return document.getElementById('text').value.includes('base_model: Qwen/Qwen3-8B')")
    reader.until("return /GiB/.test(document.getElementById('headline').textContent)")


def test_hostile_words_are_shown_and_run_nothing(reader):
    hostile = SMALL.replace("adamw_torch_fused", json.dumps(HOSTILE)).replace("tatsu-lab/alpaca", json.dumps(HOSTILE))
    reader.paste(hostile)
    reader.until("return document.querySelector('#timeline-chart svg.drawn')")
    reader.drop("x.log", f"{HOSTILE}\ntorch.OutOfMemoryError: CUDA out of memory {HOSTILE}")
    reader.until("return document.querySelector('#diagnosis #close')")
    assert reader.run("return document.querySelectorAll('main img, main script').length") == 0
    reader.drop("x.pickle", "cos\nsystem\n(S'id'\ntR.")
    reader.until("return document.querySelector('#diagnosis .verdict')?.textContent.includes('snapshot')")


def test_a_link_carries_the_config_and_its_settings(reader):
    reader.choose("#gpu", "L4")
    reader.paste(SMALL)
    reader.click("#share")
    link = reader.until("return location.hash.startsWith('#c=') && location.href")
    verdict = reader.text()
    reader.open(link)
    reader.until("return /GiB/.test(document.getElementById('headline').textContent)")
    assert reader.config() == SMALL
    assert reader.text() == verdict
    assert "L4" in verdict


def test_it_loads_again_without_a_network(reader, served):
    if served.answerers:
        pytest.skip("the page of `vramwise serve` asks the server")
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
