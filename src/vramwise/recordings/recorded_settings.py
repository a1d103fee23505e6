"""The allocator settings that a recording ran with, as a settings string for torch, and where they changed.

Every value is checked before it becomes text: a recording is untrusted, and the text of a few nested lists can be
larger than any memory.
"""

from __future__ import annotations

import math
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.recordings.ranges import RangeSet
from vramwise.recordings.recording import ALLOC, SEGMENT_ALLOC, SEGMENT_MAP, Recording
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


def mode_switches(recording: Recording, expandable_at_start: bool) -> dict[int, bool]:
    """Return event → expandable mode from there on, where a program switched it (as RL trainers do around inference).

    Empty for most recordings, which grow in one way only. torch records no such event. The signs: memory grows by
    segment_map only in expandable mode and by segment_alloc only in plain mode, and plain mode serves no request from
    an expandable segment. Between two signs of different modes, the switch is placed right after the last sign of
    expandable mode, or right before the first.
    """
    rows, landmarks = recording.events.rows, recording.events.landmarks
    grows = {rows[at][0] for at in landmarks}
    if not {SEGMENT_ALLOC, SEGMENT_MAP} <= grows:
        return {}
    expandable_memory = RangeSet()
    for segment in recording.segments:
        if segment.expandable:
            expandable_memory.add(segment.address, segment.address + segment.size)
    for at in landmarks:
        action, address, size, _ = rows[at]
        if action == SEGMENT_MAP:
            expandable_memory.add(address, address + size)
    switches: dict[int, bool] = {}
    mode = expandable_at_start
    last_sign = -1
    for at, (action, address, _, _) in enumerate(rows):
        if action == SEGMENT_MAP or (action == ALLOC and address in expandable_memory):
            if not mode:
                switches[at] = mode = True
            last_sign = at
        elif action == SEGMENT_ALLOC and mode:
            switches[last_sign + 1] = mode = False
    return switches
