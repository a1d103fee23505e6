"""Read files that ship inside the package.

Uses the module's own loader, which also works from a zip file. `importlib.resources` does the same but takes longer to
import than all our data files take to read.
"""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from importlib.abc import ResourceLoader


def bundled_text(name: str, beside: str = __file__) -> str:
    """Return the content of a file beside one of our modules (`__file__`); default: the package's own folder."""
    loader = cast("ResourceLoader", __spec__.loader)
    return loader.get_data(str(PurePath(beside).parent / name)).decode("utf-8")


def bundled_json(name: str, beside: str = __file__) -> Any:
    """Return the parsed content of a JSON file beside one of our modules."""
    return json.loads(bundled_text(name, beside))
