"""`fix` passes a user's own text on: byte by byte to programs, neutralised where people or CI services read it."""

import os
import subprocess
import sys

import pytest

from installed import PATIENCE, posix

BOM, SEPARATOR = "\ufeff", "\x85"
CONFIG = (
    f"{BOM}# \u202e ##[error]x{SEPARATOR}\r\nmicro_batch_size: 2\r\neval_batch_size: 4 # a\ttab\r\n"
    "dataset_prepared_path: |\r\n  ::error::x\r\nval_set_size: 0.1\r\nevals_per_epoch: 1\r\n"
).encode()
MENDED = CONFIG.replace(b"eval_batch_size: 4", b"eval_batch_size: 2")
WORDS = ("--select", "eval-batch-differs")


def fix(*words, data=CONFIG, **more):
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", "GITHUB_ACTIONS")}
    environment |= more.pop("env", {})
    command = [sys.executable, "-m", "vramwise", "fix", *words, *WORDS]
    more = {"stdout": subprocess.PIPE, **more}
    return subprocess.run(
        command, input=data, stderr=subprocess.PIPE, env=environment, timeout=PATIENCE, check=False, **more
    ).stdout


@pytest.mark.parametrize("env", [{}, {"CI": "true"}])
def test_a_config_through_a_pipe_is_exact(env):
    assert fix("-", env=env) == MENDED


def test_a_diff_through_a_pipe_is_exact_but_for_names(tmp_path):
    (tmp_path / "a\nb.yml").write_bytes(CONFIG)
    head, _, rest = fix("--diff", "a\nb.yml", cwd=tmp_path).partition(b"@@")
    assert head == b"--- a\\nb.yml\n+++ a\\nb.yml\n"
    assert "# \u202e ##[error]x\x85\r\n".encode() in rest


def test_a_diff_in_a_log_is_neutralised():
    out = fix("--diff", "-", env={"GITHUB_ACTIONS": "true"}).decode()
    assert " \\ufeff# \\u202e #\\x23[error]x\\x85\n" in out
    assert "\n+eval_batch_size: 2 # a\\ttab\n" in out
    assert "\n   \\x3a:error::x\n" in out
    assert "\r" not in out


@posix
def test_a_config_on_a_terminal_is_neutralised():
    import pty

    screen, terminal = pty.openpty()
    fix("-", stdout=terminal)  # what is written stays in the terminal until it is read
    os.close(terminal)
    out = os.read(screen, 65536).decode()
    os.close(screen)
    assert "\\ufeff# \\u202e" in out
    assert "\u202e" not in out
