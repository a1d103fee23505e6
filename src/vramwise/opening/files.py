"""Finding and reading files: the configs that a path names. This module knows nothing about YAML."""

from __future__ import annotations

import difflib
import os
import re
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from vramwise.documents.refusal import too_large
from vramwise.errors import ConfigError
from vramwise.limits.ceilings import CONFIG_BYTES, NOTEBOOK_BYTES

STDIN = "-"
_SUFFIXES = (".yml", ".yaml")
_SOURCES = (".py", ".ipynb")
_SHELLS = (".sh", ".bash", ".zsh", ".slurm", ".sbatch")
_SHEBANG = re.compile(rb"#! *[\w/]*\b(?:env +)?(?:ba|z|da)?sh\b")
# The call of a trainer: other Python files in a folder are skipped.
_TRAINER = b"Trainer("
_MODEL = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
# How many names in a folder are compared with one that does not exist.
_MOST_NAMES = 1000
_FOREIGN_FOLDERS = {
    "node_modules",
    "site-packages",
    "__pycache__",
    "venv",
}  # hidden folders (.venv, .git) are skipped too


def config_files(paths: Iterable[str]) -> list[str]:
    """Return the files that the paths name, each once; for a folder, all files below it that may train."""
    found: dict[str, None] = {}
    for path in paths:
        if path != STDIN and os.path.isdir(path):  # noqa: PTH112 (a Path would normalise what the user typed)
            found.update(dict.fromkeys(_yaml_below(path)))
        else:
            found[path] = None
    return list(found)


def _yaml_below(folder: str) -> list[str]:
    files: list[str] = []
    unreadable: list[OSError] = []
    # os.walk does not follow links to folders, so a loop of links cannot trap it.
    for parent, folders, names in os.walk(folder, onerror=unreadable.append):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _FOREIGN_FOLDERS)
        wanted = [name for name in sorted(names) if name.endswith((*_SUFFIXES, *_SOURCES))]
        found = (os.path.join(parent, name) for name in wanted)  # noqa: PTH118
        files += [path for path in found if _may_train(path)]
    if unreadable and not files:
        raise _unreadable(unreadable[0])
    if not files:
        raise ConfigError("no YAML file or Python training script in this folder: name a config or a script")
    return files


def _may_train(path: str) -> bool:
    """Return whether a file in a folder is worth reading: any YAML file, or Python that mentions a trainer."""
    if not path.endswith(_SOURCES):
        return not _is_pipe_or_device(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except OSError:
        return False
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return False
        return _TRAINER in os.read(descriptor, min(found.st_size, NOTEBOOK_BYTES))
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _is_pipe_or_device(path: str) -> bool:
    """Return whether reading could block for ever. Used only for scanned folders: a named pipe is intended."""
    try:
        return not stat.S_ISREG(Path(path).stat().st_mode)
    except OSError:  # a broken link: reported when it is read
        return False


def read_config_bytes(path: str) -> bytes:
    """Return the bytes of a config; `-` reads standard input.

    Reads no more than the size limit of a config; raises ConfigError if it is exceeded or the file is unreadable.
    """
    try:
        if path == STDIN:
            return _read_limited(sys.stdin.buffer)
        most = NOTEBOOK_BYTES if path.endswith(".ipynb") else CONFIG_BYTES
        with Path(path).open("rb") as file:
            if os.fstat(file.fileno()).st_size > most:
                raise too_large(most)
            return _read_limited(file, most)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise _unreadable(error, path) from error


def _read_limited(file: BinaryIO, most: int = CONFIG_BYTES) -> bytes:
    data = file.read(most + 1)
    if len(data) > most:
        raise too_large(most)
    return data


def _unreadable(error: OSError | ValueError, path: str = "") -> ConfigError:
    if isinstance(error, FileNotFoundError):
        return ConfigError(f"file not found: {_meant(path)}")
    if isinstance(error, IsADirectoryError):
        return ConfigError("this is a folder: name a file in it")
    if isinstance(error, PermissionError):
        return ConfigError("cannot read the file: permission denied; check its mode and owner")
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return ConfigError(f"cannot read the file: {reason[:1].lower()}{reason[1:]}")


def is_shell_script(path: str) -> bool:
    """Return whether a file is a shell script, by its name or, without an ending, by its first line."""
    if path.endswith(_SHELLS) or path == STDIN or Path(path).suffix:
        return path.endswith(_SHELLS)
    try:
        with Path(path).open("rb") as file:
            return stat.S_ISREG(os.fstat(file.fileno()).st_mode) and _SHEBANG.match(file.read(100)) is not None
    except (OSError, ValueError):
        return False


def looks_like_a_model(path: str) -> bool:
    """Return whether a path that names no file looks like a model on the hub: `owner/name`."""
    return _MODEL.fullmatch(path) is not None and not path.endswith((*_SUFFIXES, ".json")) and not Path(path).exists()


def _meant(path: str) -> str:
    """Suggest what to do about a missing file: a similar file name in the same folder, or `--model`."""
    if looks_like_a_model(path):
        return f"to predict a model without a config, use vramwise predict --model {path}"
    wanted = Path(path)
    try:
        beside = sorted(one.name for one in wanted.parent.iterdir() if one.name.endswith((*_SUFFIXES, ".json")))
    except OSError:
        return "check the path"
    alike = [name for name in beside if Path(name).stem == wanted.stem]
    close = alike or difflib.get_close_matches(wanted.name, beside[:_MOST_NAMES], n=1, cutoff=0.75)
    return f"did you mean {wanted.parent / close[0]}?" if close else "check the path"
