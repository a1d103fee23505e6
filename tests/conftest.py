"""Shared by all tests: the command line in-process, and an environment without a user's own settings."""

import gc
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, settings

pytest_plugins = ["made_before", "nightly", "other_clock", "skipped"]
ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared"

# Property tests try the same examples on every machine, however slow or busy it is; `--hypothesis-profile=default`
# looks for new ones.
settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


# Ten thousand collected tests are no garbage.
gc.disable()


def pytest_collection_finish():
    """Collect garbage seldom, as the program does: its runs are made of many small objects."""
    gc.set_threshold(50_000, 10, 10)
    gc.enable()


def pytest_sessionfinish():
    """What is left when all tests are done is not searched for garbage, by pytest and by Python: that takes seconds."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _quiet_environment(monkeypatch):
    """No allocator variable, no local card and no colour setting of the developer's machine reaches a test."""
    for name in [name for name in os.environ if name.endswith("ALLOC_CONF")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("VRAMWISE_TRACE", "0")  # an unknown model would be traced for seconds where torch is installed
    monkeypatch.setattr("vramwise.opening.targets.local_gpu", lambda **_: None)
    monkeypatch.setattr("vramwise.opening.stacks._from_here", lambda packages: {})
    from vramwise.opening import targets

    targets._project.cache_clear()
    targets._target.cache_clear()


@pytest.fixture
def vramwise():
    """Run the command line; a VramwiseError becomes exit code 2, as in `main`."""
    from vramwise.cli.main import cli
    from vramwise.errors import VramwiseError

    def run(*words, stdin=None):
        result = CliRunner().invoke(cli, [str(word) for word in words], input=stdin)
        if isinstance(result.exception, VramwiseError):
            result.exit_code = 2
        elif result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run
