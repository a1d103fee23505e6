"""Reduces a model to a few layers that represent the whole: one of each kind, with the number of layers of that kind.

Identical layers do the same work. The first layer always represents only itself: if nothing before it needs a gradient,
its backward is shorter. The last layer represents only itself if the run does work for neighbouring layers.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from vramwise.models.families import with_layers
from vramwise.models.parameters import parameters
from vramwise.types import ModelSpec, RunSpec

# The most layers before the repeating pattern, and the longest pattern, that are tried.
_MOST_BEFORE, _LONGEST_PERIOD = 4, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Shallow:
    """A model with few layers. `counts`: how many layers of the whole model each of them represents."""

    model: ModelSpec
    counts: tuple[int, ...]


def shallow(run: RunSpec, model: ModelSpec) -> Shallow:
    """Return the model reduced to a few layers, or the whole model if that is not possible."""
    return _shallow(model, _reaches_beside(run)) if _alike(run) and model.reads != "both" else _whole(model)


def _reaches_beside(run: RunSpec) -> bool:
    """Return whether the run gathers or copies data for neighbouring layers while a layer runs."""
    return run.sharding.kind != "none" or run.savings.activation_offloading != "off" or run.savings.layer_offloading


def _alike(run: RunSpec) -> bool:
    """Return whether layers do the same work whatever their number; compiled ones share kernels with others."""
    named = any(digit in pattern for pattern in run.adapter.unfrozen for digit in "0123456789")
    return not named and not run.kernels.torch_compile


def _whole(model: ModelSpec) -> Shallow:
    return Shallow(model=model, counts=(1,) * model.num_hidden_layers)


@lru_cache(maxsize=64)
def _shallow(model: ModelSpec, last_apart: bool) -> Shallow:
    kinds = _kinds(model)
    end = len(kinds) - last_apart
    between = list(kinds[1:end])
    chosen = sorted({0, *[kinds.index(kind, 1) for kind in between], len(kinds) - 1 if last_apart else 0})
    small = cut(model, chosen)
    if small is None:
        return _whole(model)
    counts = [between.count(kinds[layer]) if 0 < layer < end else 1 for layer in chosen]
    return Shallow(model=small, counts=tuple(counts))


def two_depths(run: RunSpec, model: ModelSpec) -> tuple[ModelSpec, ModelSpec, int] | None:
    """Return two models one turn of the layer pattern apart, and how many more turns the whole has than the first.

    Returns None if there is no such pattern, or too few turns of it. Runs that gather or copy data for neighbouring
    layers start with two more turns. ZeRO 3 gathers a fixed number of weights ahead, over any number of layers, so no
    depth is enough and the result is None. Nor is there one for an encoder and a decoder.
    """
    if not _alike(run) or run.sharding.kind == "zero3" or model.reads == "both":
        return None
    return _two_depths(model, 3 if _reaches_beside(run) else 1)


@lru_cache(maxsize=64)
def _two_depths(model: ModelSpec, least: int) -> tuple[ModelSpec, ModelSpec, int] | None:
    kinds = _kinds(model)
    for period in range(1, _LONGEST_PERIOD + 1):
        for before in range(1, _MOST_BEFORE + 1):
            turns = (len(kinds) - before) // period
            if turns < least + 2 or any(kinds[i] != kinds[i + period] for i in range(before, len(kinds) - period)):
                continue
            # whole turns only: layers left over at the end are ignored
            first, second = (cut(model, range(before + period * count)) for count in (least, least + 1))
            return None if first is None or second is None else (first, second, turns - least)
    return None


@lru_cache(maxsize=64)
def _kinds(model: ModelSpec) -> tuple[Hashable, ...]:
    """Return a key for each layer that identifies its kind: type, use of rotary positions, and parameters."""
    found: list[list[Hashable]] = [[] for _ in range(model.num_hidden_layers)]
    for name, shape, _, layer in parameters(model):
        if layer is not None:
            found[layer].append((name.partition(f".{layer}.")[2], shape))
    types: Sequence[Hashable] = model.layer_types or ("",) * model.num_hidden_layers
    if model.trace is not None:
        types = model.trace.kinds
    return tuple([(types[i], i in model.nope_layers, tuple(own)) for i, own in enumerate(found)])


def cut(model: ModelSpec, chosen: Sequence[int]) -> ModelSpec | None:
    """Return the model with only these layers, or None if the layers or the parameters outside them would differ."""
    small = replace(
        model,
        num_hidden_layers=len(chosen),
        layer_types=tuple([model.layer_types[i] for i in chosen]) if model.layer_types else (),
        dense_layers=tuple([new for new, old in enumerate(chosen) if old in model.dense_layers]),
        nope_layers=tuple([new for new, old in enumerate(chosen) if old in model.nope_layers]),
        trace=None if model.trace is None else with_layers(model.trace, tuple(chosen)),
    )
    kinds = _kinds(model)
    alike = _kinds(small) == tuple([kinds[i] for i in chosen])
    return small if alike and _outside(small) == _outside(model) else None


def _outside(model: ModelSpec) -> list[tuple[str, tuple[int, ...]]]:
    return [(name, shape) for name, shape, _, layer in parameters(model) if layer is None]
