"""Hostile configs, logs, snapshots, names and links in the browser: shown as text, running nothing."""

import pytest
from hostile import attack, inputs
from page_reader import NEEDS_PAGE, SMALL, TITLE

pytestmark = NEEDS_PAGE


@pytest.mark.parametrize("seed", [1])
def test_nothing_runs_and_the_page_goes_on(reader, seed):
    for kind, name, content in inputs(42, seed):
        assert attack(reader, kind, name, content) == [], (kind, name, content[:500])
    reader.plain_settings()
    reader.paste(SMALL)
    reader.until("return /GiB/.test(document.getElementById('headline').textContent)")
    assert reader.run("return document.title") == TITLE


def test_the_watch_sees_what_it_looks_for(reader):
    """A test that cannot fail would prove nothing."""
    reader.run("document.querySelector('main').append(document.createElement('img'))")
    from hostile import INJECTED

    assert reader.run(INJECTED)
    reader.run("document.querySelector('main img').remove()")
    assert reader.run(INJECTED) == []
