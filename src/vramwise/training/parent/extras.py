"""Packages that training needs and `pip install vramwise` does not install; searched for, never imported."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from vramwise.errors import VramwiseError

INSTALL_TRAIN = "pip install 'vramwise[train]'"
TRAIN = ("torch", "transformers", "accelerate")
# module → the line that installs it
_LINES = {
    "deepspeed": "pip install deepspeed",
    "wandb": "pip install wandb",
    "tensorboard": "pip install tensorboard",
    "flash_attn": "pip install flash-attn --no-build-isolation",
    "axolotl": "pip install --no-build-isolation axolotl",
    "trl": "pip install trl peft",
    "llamafactory": "pip install llamafactory",
}
# trainer → its command
COMMANDS = {"axolotl": "axolotl", "trl": "trl", "llamafactory": "llamafactory-cli"}


def find_command(trainer: str) -> str | None:
    """Return a trainer's command on the path, else beside our own Python; None if not found.

    The trainer may have its own environment.
    """
    name = COMMANDS[trainer]
    return shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))


def trainer_command(trainer: str) -> str:
    """Return a trainer's command; raises VramwiseError with the install line if it is missing."""
    found = find_command(trainer)
    if found is None:
        raise VramwiseError(f"--engine {trainer} needs the {COMMANDS[trainer]} command: {install_lines([trainer])}")
    return found


def python_of(command: str) -> str:
    """Return the Python that runs a command: from its first line, else the one beside it, else ours."""
    path = Path(command).resolve()
    with path.open("rb") as file:
        first = file.readline(4096).decode("utf-8", "replace").strip()
    named = Path(first.removeprefix("#!").strip())
    beside = [path.parent / name for name in ("python", "python3")]
    candidates = [named, *beside] if first.startswith("#!") and named.name.startswith("python") else beside
    return next((str(one) for one in candidates if one.is_file()), sys.executable)


def site_of(command: str) -> tuple[str, ...]:
    """Return the package folders of a command's environment; empty if that is our own."""
    python = Path(python_of(command))
    if python.parent == Path(sys.executable).parent:
        return ()
    patterns = ("lib*/python3*/site-packages", "Lib/site-packages")
    return tuple(str(one) for pattern in patterns for one in sorted(python.parent.parent.glob(pattern)))


def missing(modules: Iterable[str]) -> list[str]:
    """Return the modules that are not installed."""
    return [name for name in modules if find_spec(name) is None]


def install_lines(absent: Iterable[str]) -> str:
    """Return the commands that install what is missing."""
    return " && ".join(dict.fromkeys(_LINES.get(name, INSTALL_TRAIN) for name in absent))


def require(modules: Iterable[str], purpose: str) -> None:
    """Raise VramwiseError with the install line if a module is missing."""
    absent = missing(modules)
    if absent:
        raise VramwiseError(f"{purpose} needs {', '.join(absent)}: {install_lines(absent)}")
