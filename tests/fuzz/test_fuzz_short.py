"""The fuzzers, briefly: every regression file, and a few hundred fresh inputs of a fixed seed. `make fuzz` does more."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Two halves of about the same weight, so that a machine with two cores is done sooner under pytest-xdist.
TARGETS = (
    "check,check-gpu,predict,fix,foreign,what-if,options,model,lengths",
    "deepspeed,stack,values,names,project,snapshot,trace,log,records,plan",
)


def fuzz(*words):
    """Run the fuzzers in processes of their own: a limit on memory must not hit the tests."""
    return subprocess.run(
        [sys.executable, "-m", "tests.fuzz.run", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.parametrize("targets", TARGETS)
def test_no_input_breaks_a_command(targets, tmp_path):
    done = fuzz(
        *("--corpus", "--executions", "100", "--seconds", "14", "--seed", "1", "--jobs", "2"),
        *("--targets", targets, "--failures", str(tmp_path)),
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_target_has_its_turn():
    from importlib import import_module

    sys.path.insert(0, str(ROOT))
    try:
        known = import_module("tests.fuzz.targets").load()
    finally:
        sys.path.remove(str(ROOT))
    assert set(",".join(TARGETS).split(",")) == set(known)
    folders = {path.name for path in (ROOT / "tests" / "fuzz" / "corpus").iterdir()}
    assert folders <= set(known), "a corpus folder that no target reads"
