"""Half of a run collects with another clock: pytest-xdist stops where workers have not collected the same tests.

Parameters made from the time would then differ, and those made from a hash differ anyway: every worker has a hash seed
of its own. `tests/test_collection.py` holds this plugin to its word.
"""

import os
import time
from functools import partial

import pytest

_DAY_S = 86_399


def _later(clock, by):
    return clock() + by


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    if os.environ.get("PYTEST_XDIST_WORKER") != "gw1":
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", partial(_later, time.time, _DAY_S))
        patch.setattr(time, "time_ns", partial(_later, time.time_ns, _DAY_S * 10**9))
        return (yield)
