"""Read a file that ships inside the package.

Through the module's own loader, which also works from a zip: `importlib.resources` does the same but takes longer to
import than reading all our facts does.
"""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from importlib.abc import ResourceLoader


def bundled_text(name: str, beside: str = __file__) -> str:
    """The content of a file beside a module of ours (`__file__`), by default in the package's own folder."""
    loader = cast("ResourceLoader", __spec__.loader)
    return loader.get_data(str(PurePath(beside).parent / name)).decode("utf-8")


def bundled_json(name: str, beside: str = __file__) -> Any:
    """The same, parsed."""
    return json.loads(bundled_text(name, beside))


def patched(value: Any, patch: Any) -> Any:
    """One release's facts from another's and what differs between them; None takes a key away."""
    if not isinstance(patch, dict):
        return patch
    result = dict(value) if isinstance(value, dict) else {}
    for key, change in patch.items():
        if change is None:
            result.pop(key, None)
        else:
            result[key] = patched(result.get(key), change)
    return result
