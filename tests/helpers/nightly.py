"""What `make test` leaves to `make test-all`: exhaustive versions of tests, of which it runs some cases itself.

`@pytest.mark.nightly` is a whole test. `@pytest.mark.sampled(5)` on a test with many cases: `make test` runs every
fifth. `@settings(max_examples=examples(300))` on a property: `make test` tries a quarter of them.
`@pytest.mark.usefixtures("short_searches")` on a test of what is done with the answer of a search: `make test` stops
the search early. `"brief_searches"` stops it at once, where any variant that fits will do.
"""

from collections import Counter

import pytest

_FEWEST_EXAMPLES = 4
_everything = False


def pytest_configure(config: pytest.Config) -> None:
    """Without `-m "not nightly"`, which pyproject.toml sets, everything runs: `pytest -m ''`."""
    global _everything
    _everything = not config.option.markexpr


def examples(count: int) -> int:
    """How many examples of a property to try in this run, of `count` in a run of everything."""
    return count if _everything else max(count // 4, _FEWEST_EXAMPLES)


@pytest.fixture
def short_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches stop at an eighth of their effort. What they have found by then fits, but need not be the fastest."""
    _shorten(monkeypatch, 8)


@pytest.fixture
def brief_searches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same at a fiftieth, for a file of tests that search little; one of them may ask for `short_searches`."""
    if "short_searches" not in request.fixturenames:
        _shorten(monkeypatch, 50)


def _shorten(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    if _everything:
        return
    from vramwise.diagnosis import advice
    from vramwise.page import answers as remedies
    from vramwise.variants import effort
    from vramwise.verbs.fitting import fastest, largest

    for module in (fastest, largest, advice, remedies):
        for name in ("ANSWER", "BESIDE", "OPENED", "DIAGNOSIS"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, getattr(effort, name) // times)


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a sampled test only every so many cases are not nightly."""
    seen: Counter[tuple[str, str]] = Counter()
    for item in items:
        mark = item.get_closest_marker("sampled")
        if mark is None or item.parent is None:
            continue
        key = (item.parent.nodeid, getattr(item, "originalname", item.name))
        if seen[key] % mark.args[0]:
            item.add_marker("nightly")
        seen[key] += 1
