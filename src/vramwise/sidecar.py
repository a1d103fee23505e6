"""Files beside a config that decide memory too: the DeepSpeed JSON it names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vramwise.types import Config

_LIMIT_BYTES = 1024 * 1024


def read_deepspeed_file(config: Config) -> Mapping[str, Any] | None:
    """The content of the file that `deepspeed:` names, in the current folder or beside the config; None without one."""
    name = config.get("deepspeed")
    if not isinstance(name, str):
        return None
    for folder in (Path(), Path(config.document.path).parent):
        content = _read_json(folder / name)
        if content is not None:
            return content
    return None


def _read_json(path: Path) -> Mapping[str, Any] | None:
    try:
        if not path.is_file() or path.stat().st_size > _LIMIT_BYTES:
            return None
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
