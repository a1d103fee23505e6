"""Chromium driven through chromedriver's own protocol, for the tests of pages; without either they are skipped."""

import json
import os
import re
import shutil
import subprocess
from contextlib import contextmanager
from urllib.request import Request, urlopen

import pytest

from installed import NO_BROWSER

DRIVER = shutil.which("chromedriver")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(not (DRIVER and CHROMIUM), reason=NO_BROWSER)
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

    def press(self, keys, selector=".plot"):
        found = self.call("/element", {"using": "css selector", "value": selector})
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


@contextmanager
def started():
    """chromedriver on a free port, and one session in it."""
    process = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        browser = Browser(_port(process))
        yield browser
        browser.call("", method="DELETE")
    finally:
        process.terminate()
        process.wait(300)
