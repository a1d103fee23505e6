"""Read a JSON file that ships inside this package.

Through the module's own loader, which also works from a zip: `importlib.resources` does the same but takes longer to
import than reading all our facts does.
"""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from importlib.abc import ResourceLoader


def bundled_json(name: str) -> Any:
    """The content of `vramwise/facts/<name>`."""
    loader = cast("ResourceLoader", __spec__.loader)
    return json.loads(loader.get_data(str(PurePath(__file__).parent / name)))
