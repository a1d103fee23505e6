"""How the suite is run: what `make test` leaves to the night, and how it tells what was skipped."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MADE = """
import pytest
from installed import needs, NO_CORPUS

@pytest.mark.sampled(3)
@pytest.mark.parametrize("number", range(7))
def test_many(number): pass

@pytest.mark.nightly
def test_slow(): pass

@needs("no_such_library")
def test_library(): pass

@pytest.mark.skipif(True, reason=NO_CORPUS)
@pytest.mark.parametrize("number", range(2))
def test_data(number): pass
"""


@pytest.fixture
def run(tmp_path):
    (tmp_path / "test_made.py").write_text(MADE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  nightly\n  sampled\n")

    def start(*words):
        command = [sys.executable, "-m", "pytest", "-n0", "-p", "skipped", "-p", "nightly", "-p", "no:cacheprovider"]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        path = os.pathsep.join([str(HERE / "helpers"), clean.get("PYTHONPATH", "")])
        env = {**clean, "PYTHONPATH": path, "COLUMNS": "200"}
        return subprocess.run([*command, *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    return start


def test_a_run_by_day(run):
    done = run("-m", "not nightly")
    assert "3 passed, 3 skipped, 5 deselected" in done.stdout
    assert done.returncode == 0
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert "1  no_such_library is not installed: make test, or pip install --group train-test" in lines
    assert any(line.startswith("2  the corpus of public configs is not here: ") for line in lines)


def test_a_run_by_night_that_may_skip_nothing(run):
    done = run("--no-skips")
    assert "8 passed, 3 skipped" in done.stdout
    assert done.returncode == 1
