"""What a prediction does not count: keys of the file that no resolver reads, and code of a script that is not read.

`trainers/unread.json` sorts every key of the trainers' schemas that no resolver reads: harmless, with the reason, or
named, if it changes what trains, what is quantised or what is sharded. A named key with the effect "more" or "less"
leaves one end of the range open; "said": it is only mentioned. Of code, a function that creates the model counts, and
weights that a script freezes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vramwise.bundled import bundled_json
from vramwise.models.parameters import parameter_count
from vramwise.timeline import MemoryReport
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


def code_doubts(run: RunSpec, model: ModelSpec, needs: MemoryReport) -> Iterator[Doubt]:
    """Yield what unread code of the run's script may change. `needs`: the figure without it."""
    document = run.config.document
    if document.script is None:
        return
    figure, held = max(1, needs.highest_reserved_bytes), needs.breakdown_bytes
    facts = document.script.facts
    if (line := facts.get("model made elsewhere")) is not None:
        text = f"line {document.label(line)} has a function create the model: in how many bits is not known"
        more = held.get("weights", 0) if run.precision.weights_dtype != "fp32" else 0
        less = max(0, figure - _least_weights(run, model))
        yield Doubt(kind="script", text=text, more=more / figure, less=less / figure)
    elif (line := facts.get("weights frozen")) is not None:
        text = f"line {document.label(line)} freezes weights: how many is not known, all count as trained"
        less = held.get("gradients", 0) + held.get("optimizer", 0) + needs.idle_bytes  # which their step leaves behind
        yield Doubt(kind="script", text=text, less=less / figure)


def _least_weights(run: RunSpec, model: ModelSpec) -> int:
    """Return what the weights need on a card at least: in 4 bits, in equal parts where a strategy divides them."""
    parts = 1 if run.sharding.kind in ("none", "ddp") else run.batch.gpus
    return parameter_count(model) // 2 // parts
