"""The built page, served and open in a browser: one for each file of tests."""

import pytest
from page_reader import Reader, page_served

from browsers import started


@pytest.fixture(scope="module")
def served():
    with page_served() as server:
        yield server


@pytest.fixture(scope="module")
def reader(served, tmp_path_factory):
    with started() as browser:
        downloads = tmp_path_factory.mktemp("downloads")
        asked = {"cmd": "Browser.setDownloadBehavior", "params": {"behavior": "allow", "downloadPath": str(downloads)}}
        browser.call("/goog/cdp/execute", asked)
        hand = Reader(browser, served.address, downloads)
        hand.open()
        yield hand
