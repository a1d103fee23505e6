"""Shared by the tests that train: a garbage collector that leaves alone what the other tests have left in memory."""

import gc

import pytest


@pytest.fixture(autouse=True, scope="module")
def _collections_are_short():
    """Every training run collects all garbage twice and more, which takes as long as there are objects in the process:
    ten thousand collected tests, torch and transformers are a second each time. So does counting what is frozen, which
    each simulation asks for: a search would take a minute."""
    gc.freeze()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "get_freeze_count", lambda: 1)
        yield
    gc.unfreeze()


@pytest.fixture
def everything_installed(monkeypatch):
    """Preparing a run finds every library, whether it is installed or not: nothing is trained."""
    monkeypatch.setattr("vramwise.training.parent.extras.find_spec", lambda name: object())
