"""The fuzzers, briefly: every regression file, and a few hundred fresh inputs of a fixed seed. `make fuzz` does more."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Parts of about the same weight, which pytest-xdist spreads; how many inputs each target gets. The costly ones, which
# predict and look for a way out, get fewer.
PARTS = {
    "check-gpu": 40,
    "predict": 40,
    "fix,what-if,options": 100,
    "check,foreign,model,lengths,deepspeed": 100,
    "stack,values,names,project,plan": 100,
    "snapshot,trace,log,records": 100,
}
# Never reached: the same inputs are tried on every machine, however slow or busy it is.
NO_LIMIT_S = 10_000


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


@pytest.mark.parametrize(("targets", "inputs"), PARTS.items(), ids=PARTS)
def test_no_input_breaks_a_command(targets, inputs, tmp_path):
    done = fuzz(
        *("--corpus", "--executions", str(inputs), "--seconds", str(NO_LIMIT_S), "--seed", "1", "--jobs", "1"),
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
    assert set(",".join(PARTS).split(",")) == set(known)
    folders = {path.name for path in (ROOT / "tests" / "fuzz" / "corpus").iterdir()}
    assert folders <= set(known), "a corpus folder that no target reads"
