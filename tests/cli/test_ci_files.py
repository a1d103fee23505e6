"""action.yml and the pre-commit hooks: nothing unpinned, no input inside shell text, paths are only paths."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from installed import PATIENCE

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}
needs_bash = pytest.mark.skipif(
    os.name == "nt" or not shutil.which("bash"), reason="bash is not installed: run the tests where it is"
)


def test_other_actions_are_pinned_by_commit():
    used = [step["uses"] for step in STEPS.values() if "uses" in step]
    assert used
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", name) for name in used)


def test_no_expression_stands_in_shell_text():
    assert not [name for name, step in STEPS.items() if "${{" in step.get("run", "")]


def run_step(name, folder, **env):
    environment = {
        "PATH": os.environ["PATH"],
        "RUNNER_TEMP": str(folder),
        "GITHUB_OUTPUT": str(folder / "output"),
        **env,
    }
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[name]["run"]]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE
    )


@pytest.fixture
def runner(tmp_path):
    """A runner's folder in which vramwise is installed: it notes its words and ends with code 1."""
    program = tmp_path / "vramwise" / "bin" / "vramwise"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!{sys.executable}\nimport sys\nopen("words", "a").write(repr(sys.argv[1:]) + "\\n")\nprint("{{}}")\nsys.exit(1)\n'
    )
    program.chmod(0o755)
    return tmp_path


@needs_bash
def test_inputs_are_words_and_paths_are_paths(runner):
    env = {
        "VRAMWISE_PATHS": "--fix.yml $(touch${IFS}pwned) a;touch",
        "VRAMWISE_GPU": "t4 `touch x`",
        "VRAMWISE_ARGS": "",
    }
    done = run_step("Check", runner, **env)
    assert done.returncode == 0, done.stderr
    first = (runner / "words").read_text().splitlines()[0]
    paths = ["--", "--fix.yml", "$(touch${IFS}pwned)", "a;touch"]
    assert first == repr(["check", "--gpu", "t4 `touch x`", "--format", "sarif", *paths])
    assert (runner / "output").read_text() == "status=1\n"
    assert not (runner / "pwned").exists()


@needs_bash
def test_the_verdict_is_the_checks(tmp_path):
    assert run_step("Verdict", tmp_path, VRAMWISE_STATUS="1").returncode == 1


def test_hooks_end_their_options():
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert all(hook["args"] == ["--"] for hook in hooks)
