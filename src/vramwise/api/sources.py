"""What the verbs accept: a path, a config's text, or its values."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vramwise.options import Text

PathLike = str | Path
# A path, a config's text (several lines), or its values.
Source = PathLike | Mapping[str, Any]


def source_of(source: Source) -> Source:
    """Return a multi-line string that is not a path as the config's text; anything else unchanged."""
    is_text = isinstance(source, str) and "\n" in source and not os.path.lexists(source)
    return Text(source) if is_text else source


def names_of(paths: PathLike | Sequence[PathLike]) -> list[str]:
    """Return the paths as strings; a single path becomes a list of one."""
    several = [paths] if isinstance(paths, str | Path) else paths
    return [str(path) for path in several]
