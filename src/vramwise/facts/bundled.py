"""Read a JSON file that ships inside the package.

Through the module's own loader, which also works from a zip: `importlib.resources` does the same but takes longer to
import than reading all our facts does.
"""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from importlib.abc import ResourceLoader


def bundled_json(name: str, beside: str = __file__) -> Any:
    """The content of a file beside a module of ours (`__file__`), by default beside this one."""
    loader = cast("ResourceLoader", __spec__.loader)
    return json.loads(loader.get_data(str(PurePath(beside).parent / name)))
