"""Doubts about code of a script that is not read: a function that creates the model, weights that it freezes."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.facts.parameters import parameter_count
from vramwise.timeline import MemoryReport
from vramwise.types import ModelSpec, RunSpec
from vramwise.variants.doubts import Doubt


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
        less = held.get("gradients", 0) + held.get("optimizer", 0)
        yield Doubt(kind="script", text=text, less=less / figure)


def _least_weights(run: RunSpec, model: ModelSpec) -> int:
    """Return what the weights need on a card at least: in 4 bits, in equal parts where a strategy divides them."""
    parts = 1 if run.sharding.kind in ("none", "ddp") else run.batch.gpus
    return parameter_count(model) // 2 // parts
