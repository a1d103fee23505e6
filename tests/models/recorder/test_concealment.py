"""Traced code of a model finds no token in the environment of any process of the user."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from own_code_model import write_model

from installed import needs

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no /proc")

SOURCE = Path(__file__).parents[3] / "src"
SECRET = "hf_" + "made_up_" * 3
SEARCH = f"""
import os
found = []
for one in os.listdir("/proc"):
    try:
        with open(f"/proc/{{one}}/environ", "rb") as file:
            if {SECRET!r}.encode() in file.read():
                found.append(one)
    except OSError:
        pass
"""
ENV = {**os.environ, "PYTHONPATH": str(SOURCE), "HF_TOKEN": SECRET}


@pytest.fixture
def another():
    """A process of the user with a token, as a shell is."""
    with subprocess.Popen(["sleep", "300"], env=ENV) as process:
        yield process
        process.kill()


def searched(before):
    """Return what a process finds after some statements, without the token in its own environment."""
    code = f"{before}\n{SEARCH}\nprint(*found)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=False
    )
    return done.stdout.split(), done.stderr


CONCEAL = "from vramwise.models.recorder import sandbox\n{}\nsandbox.conceal_others()"


@pytest.mark.parametrize("without", ["", "sandbox._enter_domain = lambda libc: False"])
def test_no_other_process_can_be_read(another, without):
    assert str(another.pid) in searched("")[0], "it could not be read anyway, so this test says nothing"
    assert searched(CONCEAL.format(without)) == ([], "")


def test_where_the_kernel_does_not_help_the_code_is_not_run(another):
    nothing = "sandbox._enter_domain = lambda libc: True; sandbox._drop_capabilities = lambda libc: None"
    found, said = searched(CONCEAL.format(nothing))
    assert found == []
    assert "this kernel would let it read your other processes" in said


@needs("torch", "transformers")
def test_traced_code_finds_no_token(another, tmp_path):
    """The program that starts it has the token in its environment, too."""
    folder = write_model(tmp_path / "model")
    code = folder / "modeling_made_up.py"
    code.write_text(f"{SEARCH}\nif found:\n    raise RuntimeError(str(found))\n{code.read_text()}")
    words = [sys.executable, "-m", "vramwise", "trace", str(folder), "--trust-remote-code"]
    env = {**ENV, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
