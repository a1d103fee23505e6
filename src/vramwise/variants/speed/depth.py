"""A model with few layers that stands for the whole: one of each kind, and how many of the whole each stands for.

Layers that are alike do the same work. The first is always there by itself: where nothing before it wants a gradient,
its backward is shorter. So is the last where something is done for the neighbour of the layer at work.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from vramwise.facts.parameters import parameters
from vramwise.families import with_layers
from vramwise.types import ModelSpec, RunSpec

# Layers before the first that repeats, and the longest pattern of kinds, that are looked for.
_MOST_BEFORE, _LONGEST_PERIOD = 4, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Shallow:
    """The model with few layers; `counts`: how many layers of the whole each of them stands for."""

    model: ModelSpec
    counts: tuple[int, ...]


def shallow(run: RunSpec, model: ModelSpec) -> Shallow:
    """Few layers for the whole, or the whole where that cannot be."""
    return _shallow(model, _reaches_beside(run)) if _alike(run) else _whole(model)


def _reaches_beside(run: RunSpec) -> bool:
    """Whether something is gathered or copied beside the layer at work, for its neighbours."""
    return run.sharding.kind != "none" or run.savings.activation_offloading != "off" or run.savings.layer_offloading


def _alike(run: RunSpec) -> bool:
    """Whether what is trained does not depend on a layer's number."""
    return not any(digit in pattern for pattern in run.adapter.unfrozen for digit in "0123456789")


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
    """Two models that differ by one turn of the pattern of layers, and how many more turns the whole has than the
    first; None where there is no such pattern, or too few turns of it.

    What is gathered or copied beside the layer at work reaches to its neighbours: such runs begin with two turns more.
    ZeRO 3 gathers a number of weights ahead, over however many layers that is: no depth is enough.
    """
    if not _alike(run) or run.sharding.kind == "zero3":
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
            # whole turns: what is left over at the end is taken off
            first, second = (cut(model, range(before + period * count)) for count in (least, least + 1))
            return None if first is None or second is None else (first, second, turns - least)
    return None


@lru_cache(maxsize=64)
def _kinds(model: ModelSpec) -> tuple[Hashable, ...]:
    """What tells one layer from another: its parameters, its type, whether it turns its heads."""
    found: list[list[Hashable]] = [[] for _ in range(model.num_hidden_layers)]
    for name, shape, _, layer in parameters(model):
        if layer is not None:
            found[layer].append((name.partition(f".{layer}.")[2], shape))
    types: Sequence[Hashable] = model.layer_types or ("",) * model.num_hidden_layers
    if model.trace is not None:
        types = model.trace.kinds
    return tuple([(types[i], i in model.nope_layers, tuple(own)) for i, own in enumerate(found)])


def cut(model: ModelSpec, chosen: Sequence[int]) -> ModelSpec | None:
    """The model with these layers alone; None where that is another model: something outside of them changed too."""
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
