"""Packages that training needs and `pip install vramwise` does not bring: looked for, never imported."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from importlib.util import find_spec

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
}


def find_axolotl() -> str | None:
    """The `axolotl` command on the path, if any; it may live in an environment of its own."""
    return shutil.which("axolotl")


def axolotl_command() -> str:
    """The `axolotl` command; without it, the line that installs it."""
    found = find_axolotl()
    if found is None:
        raise VramwiseError(f"--engine axolotl needs the axolotl command: {_LINES['axolotl']}")
    return found


def missing(modules: Iterable[str]) -> list[str]:
    """Those of the modules that are not installed."""
    return [name for name in modules if find_spec(name) is None]


def install_lines(absent: Iterable[str]) -> str:
    """The exact commands that bring what is missing."""
    return " && ".join(dict.fromkeys(_LINES.get(name, INSTALL_TRAIN) for name in absent))


def require(modules: Iterable[str], purpose: str) -> None:
    """Stop with the exact install line where a module is missing."""
    absent = missing(modules)
    if absent:
        raise VramwiseError(f"{purpose} needs {', '.join(absent)}: {install_lines(absent)}")
