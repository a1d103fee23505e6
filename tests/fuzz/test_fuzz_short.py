"""The fuzzers, briefly: every regression file, and some fresh inputs of a fixed seed. `make fuzz` does more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Parts of about the same weight, which pytest-xdist spreads.
PARTS = {
    "configs": "check,fix,foreign,keys-check,keys-fix,keys-predict,names,project,stack,values,what-if,options,lookup,fit",
    "files": "check-gpu,predict,model,lengths,deepspeed,accelerate,fsdp,data-json,data-csv,data-parquet,tokenizer,"
    "dataset-info,snapshot,trace,log,failed-run,records,plan,page,mcp,scripts,notebooks,arguments",
}
# Fresh inputs of a target.
FEW, MANY = 3, 100
# Regression files that take seconds each.
SLOW = (
    "gradient-accumulation-a-million.yml",
    "gradient-accumulation-of-900-thousand.yml",
    "may-fit-as-a-page.yml",
)
# Never reached: the same inputs are tried on every machine, however slow or busy it is.
NO_LIMIT_S = 10_000


def fuzz(part, inputs, folder, *words):
    """Run the fuzzers in processes of their own: a limit on memory must not hit the tests."""
    given = ("--corpus", "--executions", str(inputs), "--seconds", str(NO_LIMIT_S), "--seed", "3", "--fork")
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.run", *given, "--targets", PARTS[part], "--failures", str(folder), *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("part", PARTS)
def test_no_input_breaks_a_command(part, tmp_path):
    fuzz(part, FEW, tmp_path, "--leave-out", *SLOW)


@pytest.mark.nightly
@pytest.mark.parametrize("part", PARTS)
def test_many_inputs_break_no_command(part, tmp_path):
    fuzz(part, MANY, tmp_path)


def test_every_target_has_its_turn():
    from importlib import import_module

    sys.path.insert(0, str(ROOT))
    try:
        known = import_module("tests.fuzz.targets").load()
    finally:
        sys.path.remove(str(ROOT))
    assert set(",".join(PARTS.values()).split(",")) == set(known)
    folders = {path.name for path in (ROOT / "tests" / "fuzz" / "corpus").iterdir()}
    assert folders <= set(known), "a corpus folder that no target reads"
    slow = {path.name for path in (ROOT / "tests" / "fuzz" / "corpus").rglob("*")}
    assert set(SLOW) <= slow, "a file that is left out is gone"
