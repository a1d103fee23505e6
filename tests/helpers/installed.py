"""What a test may need and a machine may lack. A reason to skip says what is missing and how to run the test.

A library is imported when a test first uses it. Collecting the tests imports neither torch nor transformers, which
would take longer than all the rest of it.
"""

import importlib
import os
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

# Seconds to wait for what a test starts: only a test that would otherwise hang reaches it, however busy the machine is.
PATIENCE = 300
SHARED = Path(__file__).parents[3] / "shared"
NO_CORPUS = "the corpus of public configs is not here: it is not published; put it in ../shared/corpus"
NO_TRACES = "recordings of the same runs under several settings are not here: put them in ../shared/traces"
NO_BROWSER = "Chromium with chromedriver is not installed: apt-get install chromium-driver, then make test-page"
NO_PAGE = "the page is not built: make test-page"
ROOT_MAY_ALL = "root may read and write every file: run the tests as another user"
NOT_THIS_SYSTEM = "this system does not have what the test is about: run it on Linux"

# How to install a library that is missing.
TRAINING = "make test, or pip install --group train-test"
INSTALL = {"mcp": "pip install --group dev", "bitsandbytes": "pip install bitsandbytes"}

needs_corpus = pytest.mark.skipif(not (SHARED / "corpus").is_dir(), reason=NO_CORPUS)
not_root = pytest.mark.skipif(getattr(os, "geteuid", lambda: 1)() == 0, reason=ROOT_MAY_ALL)
posix = pytest.mark.skipif(os.name != "posix", reason=NOT_THIS_SYSTEM)


def missing(*packages: str) -> str:
    """The reason to skip what needs these packages; empty where all of them are installed."""
    absent = [name for name in packages if find_spec(name) is None]
    return f"{absent[0]} is not installed: {INSTALL.get(absent[0], TRAINING)}" if absent else ""


def needs(*packages: str) -> pytest.MarkDecorator:
    """A mark for tests that need these packages."""
    reason = missing(*packages)
    return pytest.mark.skipif(bool(reason), reason=reason or "installed")


def need(*packages: str) -> None:
    """Skips the test that calls it, unless these packages are installed."""
    if reason := missing(*packages):
        pytest.skip(reason)


def older_than(package: str, major: int) -> bool:
    """Whether an installed package is of an older major version."""
    return find_spec(package) is not None and int(version(package).split(".")[0]) < major


# For tests that start a training, or come to where the packages of the embedded engine are asked for.
needs_training = needs("torch", "transformers", "accelerate", "peft")


class Later:
    """A module that is imported when something of it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> object:
        if attribute.startswith("_"):  # pytest looks at all that a module of tests holds
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)
