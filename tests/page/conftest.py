"""The page, served and open in a browser: one for each file of tests, and for each of its two builds."""

import pytest
from page_reader import FOLDER, Reader

from browsers import started
from installed import NO_PAGE
from threads import serving
from vramwise.page.serving import served_page


@pytest.fixture(scope="module", params=["local", "static"])
def served(request):
    if request.param == "static" and not (FOLDER / "sw.js").is_file():
        pytest.skip(NO_PAGE)
    with served_page(str(FOLDER) if request.param == "static" else None, 0) as server, serving(server):
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
