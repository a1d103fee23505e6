"""`[tool.vramwise]` of the closest pyproject.toml: which rules to use, and the machine.

Settings: select, ignore, min-severity, pedantic, gpu, gpus, torch, with, stack, alloc-conf, launcher. Any other key is
an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vramwise.errors import VramwiseError

_LISTS = {"select": "rule ids", "ignore": "rule ids", "with": 'versions like "torch==2.13.0"'}
_WORDS = ("min-severity", "gpu", "torch", "stack", "alloc-conf", "launcher")
_CHOICES = {"min-severity": ("info", "warning", "error"), "launcher": ("cli", "module")}

# tomllib takes seconds for a megabyte, and quadratic time in the number of parts of a dotted key.
_LIMIT = 1_000_000
_DEEP_KEY = re.compile(r"""(?:\.[ \t]*(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*){100}""", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectSettings:
    """The settings of a project; None or empty: not set. Command-line options override them."""

    path: str | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    min_severity: str | None = None
    pedantic: bool = False
    gpu: str | None = None
    gpus: int | None = None
    torch: str | None = None
    versions: tuple[str, ...] = ()
    stack: str | None = None
    alloc_conf: str | None = None
    launcher: str | None = None


def project_settings(folder: Path) -> ProjectSettings:
    """Return the settings of the closest pyproject.toml at or above the folder with a [tool.vramwise] table.

    Raises VramwiseError if that file cannot be read or has an invalid setting.
    """
    folder = folder.resolve()
    for parent in (folder, *folder.parents):
        path = parent / "pyproject.toml"
        if path.is_file():
            table = _table(path)
            if table is not None:
                return _settings(path, table)
    return ProjectSettings()


def _table(path: Path) -> dict[str, Any] | None:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_LIMIT + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise VramwiseError(f"{path} cannot be read: {error}") from error
    if "tool.vramwise" not in text:
        return None
    if len(text) > _LIMIT or _DEEP_KEY.search(text):
        what = f"it is longer than {_LIMIT:,} characters" if len(text) > _LIMIT else "a key has more than 100 parts"
        raise VramwiseError(f"{path} cannot be read: {what}")
    import tomllib  # only where there is such a table: it costs start-up time

    try:
        content = tomllib.loads(text)
    except RecursionError as error:
        raise VramwiseError(f"{path} cannot be read: it is nested too deeply") from error
    except ValueError as error:  # bad TOML, or a number of thousands of digits
        raise VramwiseError(f"{path} cannot be read: {error}") from error
    tool = content.get("tool")
    table = tool.get("vramwise") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise VramwiseError(f"{path}: tool.vramwise must be a table")
    return table


def _settings(path: Path, table: dict[str, Any]) -> ProjectSettings:
    for key, value in table.items():
        problem = _problem(key, value)
        if problem:
            raise VramwiseError(f"{path}: tool.vramwise.{key} {problem}")
    return ProjectSettings(
        path=str(path),
        select=tuple(table.get("select", ())),
        ignore=tuple(table.get("ignore", ())),
        min_severity=table.get("min-severity"),
        pedantic=table.get("pedantic", False),
        gpu=table.get("gpu"),
        gpus=table.get("gpus"),
        torch=table.get("torch"),
        versions=tuple(table.get("with", ())),
        stack=None if "stack" not in table else str(path.parent / table["stack"]),
        alloc_conf=table.get("alloc-conf"),
        launcher=table.get("launcher"),
    )


def _problem(key: str, value: Any) -> str | None:
    if key in _LISTS:
        listed = isinstance(value, list) and all(isinstance(item, str) for item in value)
        return None if listed else f"must be a list of {_LISTS[key]}"
    if key == "gpus":
        return None if type(value) is int and value >= 1 else "must be a whole number of at least 1"
    if key == "pedantic":
        return None if isinstance(value, bool) else "must be true or false"
    if key not in _WORDS:
        return f"is not a valid setting: use {', '.join((*_LISTS, 'gpus', 'pedantic', *_WORDS))}"
    if not isinstance(value, str):
        return 'must be a string, e.g. "2.8"'
    choices = _CHOICES.get(key)
    return None if choices is None or value in choices else f"must be one of {', '.join(choices)}"
