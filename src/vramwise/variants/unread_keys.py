"""Keys that change what trains, what is quantised or what is sharded, and that no prediction counts.

`trainers/unread.json` sorts every key of the trainers' schemas that no resolver reads: harmless, with the reason, or
named. A named key with the effect "more" or "less" leaves one end of the range open; "said": it is only mentioned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vramwise.bundled import bundled_json
from vramwise.types import ModelSpec, RunSpec, Unfollowed
from vramwise.variants.doubts import Doubt


def table_of(trainer: str) -> Iterator[Mapping[str, Any]]:
    """Yield the parts of the table for a trainer: `named` and `harmless`."""
    table = bundled_json("trainers/unread.json")
    parts = table["parts"]  # a trainer without its own has only transformers' arguments
    yield from (table[part] for part in parts.get(trainer, parts[""]))


def key_doubts(run: RunSpec, model: ModelSpec) -> Iterator[Doubt]:
    """Yield the keys of the file that are only mentioned."""
    for key, entry in _written(run):
        if entry["effect"] == "said":
            yield Doubt(kind="key", text=f"not counted: {key} ({entry['why']})")


def unread_features(run: RunSpec) -> Iterator[Unfollowed]:
    """Yield the keys of the file that may only add to the figure, or only take from it."""
    for key, entry in _written(run):
        if entry["effect"] != "said":
            yield Unfollowed(name=key, less=entry["effect"] == "less", why=f"not counted, {entry['why']}")


def _written(run: RunSpec) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for part in table_of(run.trainer):
        for key, entry in part["named"].items():
            value = _value(run.config.values, key)
            if value and value not in entry.get("unless", ()):
                yield key, entry


def _value(values: Mapping[Any, Any], key: str) -> Any:
    block, _, name = key.rpartition(".")
    held = values.get(block) if block else values
    return held.get(name) if isinstance(held, Mapping) else None
