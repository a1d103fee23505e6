"""From a trace document (already parsed) to a `ModelSpec`. Pure: reads no files, imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.types import ModelSpec
from vramwise.types.model import Trace

FORMAT = 1


def model_from_trace(document: Mapping[str, Any], *, name: str, source: str) -> ModelSpec:
    """The model that a trace describes. `source` names the file in messages and in the spec."""
    if document.get("format") != FORMAT:
        raise VramwiseError(f"{source}: is not a trace of this version: trace the model again")
    try:
        return _model(document, name, source)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise VramwiseError(f"{source}: is not a whole trace ({type(error).__name__}: {error})") from error


def _model(document: Mapping[str, Any], name: str, source: str) -> ModelSpec:
    sizes = dict(document["sizes"])
    kinds = tuple(document["kinds"])
    mode = next(iter(document["modes"].values()))["all"]
    windows = [layer["window"] for layer in mode["layers"]]
    tail = mode["tail"]
    capped = any(word.startswith("tanh") for word in tail)
    trace = Trace(
        source=document["source"],
        parameters=tuple((item, tuple(shape), kind, layer) for item, shape, kind, layer in document["parameters"]),
        layers=document["layers"],
        embedding=document["embedding"],
        final_norm=document["final_norm"],
        head=document["head"].removesuffix(".weight"),
        kinds=kinds,
        scaled_logits=not capped and any(word.startswith(("mul", "div")) for word in tail),
        modes=document["modes"],
    )
    heads = sizes["num_attention_heads"]
    sizes.setdefault("head_dim", sizes["hidden_size"] // heads)
    sliding = any(windows)
    return ModelSpec(
        name=name,
        source=source,
        model_type=document["model_type"],
        family="traced",
        **sizes,
        rotary_fraction=0.0,
        sliding_window=next((window for window in windows if window), None),
        layer_types=tuple("sliding_attention" if windows[kind] else "full_attention" for kind in kinds)
        if sliding
        else (),
        final_logit_softcapping=30.0 if capped else None,
        trace=trace,
    )
