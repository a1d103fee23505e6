"""The allocator settings that a recording ran with, as a settings string for torch.

Every value is checked before it becomes text: a recording is untrusted, and the text of a few nested lists can be
larger than any memory.
"""

from __future__ import annotations

import math
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.units import MIB

# The longest valid string has one number for each power of two.
_LONGEST = 1000
_MOST_DIVISIONS = 64
_TOO_LARGE = 1 << 63


def settings_text(settings: Any) -> str:
    """Return the settings string; built from the single settings if it is missing.

    Raises VramwiseError if the settings are malformed.
    """
    if not isinstance(settings, dict):
        raise VramwiseError("the recording's allocator settings are not a mapping")
    for variable in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        text = settings.get(variable)
        if isinstance(text, str) and text:
            if len(text) > _LONGEST:
                raise VramwiseError(f"the recording's {variable} is longer than {_LONGEST} characters")
            return text.encode("utf-8", "replace").decode("utf-8")
    return ",".join(_options(settings))


def _options(settings: dict[Any, Any]) -> list[str]:
    options = []
    if settings.get("expandable_segments"):
        options.append("expandable_segments:True")
    split = _number(settings, "max_split_size", -1)
    if split > 0:
        options.append(f"max_split_size_mb:{int(split) // MIB}")
    threshold = _number(settings, "garbage_collection_threshold", 0)
    if threshold > 0:
        options.append(f"garbage_collection_threshold:{threshold}")
    divisions = settings.get("roundup_power2_divisions") or {}
    if not isinstance(divisions, dict) or len(divisions) > _MOST_DIVISIONS:
        raise VramwiseError("the recording's roundup_power2_divisions are not a mapping of sizes to divisions")
    if any(divisions.values()):
        options.append("roundup_power2_divisions:[" + ",".join(_division(*item) for item in divisions.items()) + "]")
    return options


def _number(settings: dict[Any, Any], name: str, default: int) -> int | float:
    value = settings.get(name, default)
    if type(value) not in (int, float) or not math.isfinite(value) or abs(value) >= _TOO_LARGE:
        raise VramwiseError(f"the recording's {name} is not a usable number")
    return value  # type: ignore[no-any-return]


def _division(size: Any, count: Any) -> str:
    if not isinstance(size, (str, int)) or len(str(size)) > 20 or type(count) is not int:
        raise VramwiseError("the recording's roundup_power2_divisions are not a mapping of sizes to divisions")
    return f"{size}:{count}"
