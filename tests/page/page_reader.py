"""A hand at the page in Chromium, for the tests of it; without a browser they are skipped."""

import json
import time
from pathlib import Path

import pytest

from browsers import needs_browser

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
FOLDER = ROOT / "dist" / "page"
NEEDS_PAGE = [needs_browser, pytest.mark.nightly]
TITLE = "vramwise: does it fit?"
PATIENCE = 120  # seconds: Python starts in the browser, on a machine that may be busy
# Small, so that a search takes seconds.
SMALL = """base_model: Qwen/Qwen2.5-0.5B
adapter: lora
lora_r: 8
lora_alpha: 16
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
DROP = """
const [name, text] = [%s, %s];
const files = new DataTransfer();
files.items.add(new File([text], name));
dispatchEvent(new DragEvent('drop', { dataTransfer: files, bubbles: true, cancelable: true }));
"""


class Reader:
    """A hand at the page."""

    def __init__(self, browser, address, downloads=None):
        self.browser, self.address, self.downloads = browser, address, downloads

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
        shown = self.run("return document.querySelector('main').innerText")
        raise AssertionError(f"{script}\nnever came; the page says: {shown[:600]}")

    def paste(self, text):
        """The text in place of what is there, and the verdict on it; what was asked before has its answer first."""
        self.until("return !document.getElementById('verdict').classList.contains('stale')")
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

    def drop(self, name, content):
        """A file let go over the page: text, or bytes."""
        data = json.dumps(content) if isinstance(content, str) else f"new Uint8Array({list(content)})"
        self.run(DROP % (json.dumps(name), data))

    def choose(self, selector, value):
        """An option of a list, as a hand chooses it."""
        self.run(
            f"const menu = document.querySelector({json.dumps(selector)}); menu.value = {json.dumps(value)};"
            "menu.dispatchEvent(new Event('change', { bubbles: true }))"
        )

    def plain_settings(self):
        """One RTX 4090, and nothing said of versions and allocator."""
        for name, value in (("gpu", "RTX 4090"), ("gpus", "1"), ("versions", ""), ("alloc_conf", "")):
            self.choose(f"#{name}", value)

    def weighed(self):
        """Wait for what takes longer than the verdict."""
        self.until("return !document.getElementById('findings-title').textContent.includes('measuring')")

    def downloaded(self, name):
        """A file that the page handed over, once it is whole."""
        end = time.monotonic() + PATIENCE
        while not (self.downloads / name).exists() and time.monotonic() < end:
            time.sleep(0.2)
        return (self.downloads / name).read_text(encoding="utf-8")

    def config(self):
        return self.run("return document.getElementById('text').value")

    def slide(self, name, places, event="input"):
        self.run(
            f"const knob = document.getElementById('knob-{name}'); knob.value = {places};"
            f"knob.dispatchEvent(new Event('{event}', {{ bubbles: true }}))"
        )
