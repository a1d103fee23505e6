"""Runs the user's own script in a child, started as the user starts it, with our guard. The script is never changed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from vramwise.errors import VramwiseError
from vramwise.trainers.launch import read_launch
from vramwise.training.hosted.entries import SCRIPT
from vramwise.training.plan import TrainPlan

SCRIPTS = "script"
_OLDEST = (3, 11)
# All import folders, $PYTHONPATH first.
_ASK = "import json, sys; print(json.dumps([sys.version_info[:2], *filter(None, sys.path)]))"


def script_attempt(plan: TrainPlan, plan_path: str, env: Mapping[str, str]) -> list[str]:
    """Return the command of one attempt: the user's own words, with our entry before the script."""
    return [*plan.command, SCRIPT, SCRIPTS, plan_path, plan.config_path, *plan.arguments]


def command_of(words: Sequence[str]) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    """Return what starts a script, the script, and its arguments: `train.py --lr 1e-5`, or a launch line.

    Raises VramwiseError if the words start no script.
    """
    if words[0].endswith(".py"):
        return (users_python(),), words[0], tuple(words[1:])
    launch = read_launch(words)
    if launch.script is None or launch.script not in words:
        raise VramwiseError(
            f"{words[0]} starts no script here: name the script, or the config with vramwise train CONFIG"
        )
    place = list(words).index(launch.script)
    return tuple(words[:place]), launch.script, tuple(words[place + 1 :])


def users_python() -> str:
    """Return the Python that `python` means to the user, else our own."""
    return shutil.which("python") or shutil.which("python3") or sys.executable


def site_of_python(command: Sequence[str]) -> tuple[str, ...]:
    """Return the package folders of the script's Python, whose versions decide; () if they cannot be read.

    Raises VramwiseError if that Python is too old for the guard.
    """
    program = Path(command[0]).name
    python = command[0] if program.startswith("python") else _beside(command[0])
    try:
        done = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, timeout=60, check=True)
        version, *folders = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return ()
    if tuple(version) < _OLDEST:
        raise VramwiseError(
            f"{python} is Python {version[0]}.{version[1]}, and the memory guard needs "
            f"{_OLDEST[0]}.{_OLDEST[1]} or newer: use an environment with a newer Python"
        )
    return tuple(dict.fromkeys(folders))


def _beside(launcher: str) -> str:
    """Return the Python of a launcher's environment."""
    found = shutil.which(launcher)
    beside = [] if found is None else [Path(found).parent / name for name in ("python", "python3")]
    return next((str(one) for one in beside if one.is_file()), users_python())
