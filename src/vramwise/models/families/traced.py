"""Makes a family from a trace. Its parameters and names come from the model's own code, and its block is recorded."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import cast

from vramwise.models.families.base import Block, Mixture
from vramwise.models.families.layout import Family, Layout
from vramwise.models.families.parts import Kind, Parameter
from vramwise.types.model import Trace

FAMILY = "traced"
# peft 0.21.2, utils/transformers_weight_conversion.py
_OLD_NAMES = {
    "mixtral": {"gate": "gate.weight", "w1": "gate_up_proj", "w3": "gate_up_proj", "w2": "down_proj"},
    "qwen2_moe": {
        "gate": "gate.weight",
        "gate_proj": "gate_up_proj",
        "up_proj": "gate_up_proj",
        "down_proj": "down_proj",
    },
}


@lru_cache(maxsize=64)
def traced_family(trace: Trace) -> Family:
    """Return the family of a traced model."""
    transposed = any(kind == "conv1d" for _, _, kind, _ in trace.parameters)
    return Family(
        name=FAMILY,
        types={},
        block=Block(
            linear="transposed" if transposed else "linear",
            scaled_logits=trace.scaled_logits,
            wide_logits=trace.wide_logits,
            mixture=Mixture(peft_names=_OLD_NAMES[trace.experts_like]) if trace.experts_like in _OLD_NAMES else None,
        ),
        layout=Layout(layers=trace.layers, embedding=trace.embedding, final_norm=trace.final_norm),
        measured=False,
    )


@lru_cache(maxsize=64)
def traced_parameters(trace: Trace) -> tuple[Parameter, ...]:
    """Return all parameters in the model's order."""
    return tuple([Parameter(name, shape, cast(Kind, kind), layer) for name, shape, kind, layer in trace.parameters])


@lru_cache(maxsize=256)
def with_layers(trace: Trace, chosen: tuple[int, ...]) -> Trace:
    """Return the trace of the model with only these layers, renumbered."""
    start = f"{trace.layers}."
    new = {old: place for place, old in enumerate(chosen)}
    found: list[tuple[str, tuple[int, ...], str, int | None]] = []
    for name, shape, kind, layer in trace.parameters:
        if layer is None:
            found.append((name, shape, kind, layer))
        elif layer in new:
            rest = name.removeprefix(f"{start}{layer}.")
            found.append((f"{start}{new[layer]}.{rest}", shape, kind, new[layer]))
    return replace(trace, parameters=tuple(found), kinds=tuple([trace.kinds[layer] for layer in chosen]))
