"""Further shapes of models, one a line of `more_models.jsonl`. Only the line of the name at hand is parsed.

A shape is listed where our own count of its parameters equals `count`. `checked` says how that count was confirmed: by
a published one, by the size in its name, or by a published one of a digit or two.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from vramwise.bundled import bundled_text

_FILE = "facts/more_models.jsonl"


def more_shape(name: str) -> tuple[Mapping[str, Any], str | None] | None:
    """Return the shape with this hub id (in lower case), and how its checkpoint is stored; None if none has it."""
    text, lower = _texts()
    at = lower.find(f'"{name}"')
    if at < 0:
        return None
    shape: Mapping[str, Any] = json.loads(text[text.rfind("\n", 0, at) + 1 : text.find("\n", at)])
    ids: dict[str, str | None] = {known.lower(): None for known in shape["ids"]}
    ids |= {known.lower(): method for method, names in shape.get("stored", {}).items() for known in names}
    return (shape, ids[name]) if name in ids else None


@cache
def more_shapes() -> Sequence[Mapping[str, Any]]:
    """Return all of them, for names that only resemble a known one."""
    return [json.loads(line) for line in _texts()[0].splitlines()]


@cache
def _texts() -> tuple[str, str]:
    text = bundled_text(_FILE)
    return text, text.lower()
