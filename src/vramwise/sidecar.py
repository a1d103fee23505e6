"""Files beside a config that decide memory too: the JSON and YAML files that it names."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_LIMIT_BYTES = 1024 * 1024


def read_side_files(names: Sequence[str], path: str) -> dict[str, Mapping[str, Any] | None]:
    """The content of each file, found in the current folder or beside the config; None without one."""
    return {name: _read(name, path) for name in names}


def _read(name: str, path: str) -> Mapping[str, Any] | None:
    for folder in (Path(), Path(path).parent):
        content = _read_mapping(folder / name)
        if content is not None:
            return content
    return None


def _read_mapping(path: Path) -> Mapping[str, Any] | None:
    try:
        if not path.is_file() or path.stat().st_size > _LIMIT_BYTES:
            return None
        text = path.read_text(encoding="utf-8")
        content = _yaml(text) if path.suffix in (".yaml", ".yml") else json.loads(text)
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
