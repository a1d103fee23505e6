"""The suite is the same in every process: workers that collect other tests than each other end a run of `make test`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Collects with another clock: parameters made from the time differ, without a test that waits for the time to pass.
COLLECT = """
import sys, time
from functools import partial

def later(clock, seconds):
    return clock() + seconds

seconds = int(sys.argv[1])
time.time = partial(later, time.time, seconds)
time.time_ns = partial(later, time.time_ns, seconds * 10**9)

import pytest
sys.exit(pytest.main(["--collect-only", "-n0", "-qo", "addopts=", "-p", "no:cacheprovider", *sys.argv[2:]]))
"""


def collections(folder, *words, processes=((1, 0), (2, 86_399))):
    """Node ids in order, of processes with other hash seeds and clocks a day apart."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", COLLECT, str(seconds), *words],
            cwd=folder,
            env={**clean, "PYTHONHASHSEED": str(seed)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed, seconds in processes
    ]
    listed = [process.communicate()[0] for process in running]
    assert not any(process.returncode for process in running), listed[0][-2000:]
    return [[line for line in text.splitlines() if "::" in line] for text in listed]


@pytest.mark.nightly  # by day the workers of pytest-xdist compare what they have collected, one by another clock
def test_two_processes_collect_the_same_tests(request):
    """In a run of the whole suite its own collection is one of the two."""
    marks = request.config.option.markexpr
    one = [item.nodeid for item in request.session.items]
    [other] = collections(ROOT, "tests", "-m", marks, processes=[(2, 86_399)])
    if len(one) < len(other) / 2:
        [one] = collections(ROOT, "tests", "-m", marks, processes=[(1, 0)])
    assert len(one) > 5_000
    assert [pair for pair in zip(one, other, strict=False) if pair[0] != pair[1]][:5] == []
    assert len(one) == len(other)


CLOCK = "import gzip, pytest\n@pytest.mark.parametrize('data', [gzip.compress(b'x')])\ndef test_clock(data): pass\n"
HASH = "import pytest\n@pytest.mark.parametrize('word', {'a', 'b', 'c', 'd', 'e', 'f'})\ndef test_hash(word): pass\n"


def test_workers_that_collect_by_other_clocks_are_compared(tmp_path):
    (tmp_path / "test_made.py").write_text(CLOCK)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n2", "-p", "other_clock", "-p", "no:cacheprovider", "--rootdir", ".", "."],
        cwd=tmp_path,
        env={**clean, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests" / "helpers"), clean.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Different tests were collected" in done.stdout


@pytest.mark.nightly  # collects in processes of its own
def test_parameters_of_the_clock_or_of_a_hash_would_be_found(tmp_path):
    (tmp_path / "test_made.py").write_text(CLOCK + HASH)
    one, other = collections(tmp_path, "test_made.py", "--rootdir", str(tmp_path))
    different = [first.partition("[")[0] for first, second in zip(one, other, strict=True) if first != second]
    assert set(different) == {"test_made.py::test_clock", "test_made.py::test_hash"}
