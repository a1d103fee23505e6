"""Model families: their model_types with transformers' defaults, their parameter layout, and their block.

A family is an entry of `families.json`. The entry names the code that it needs as `module.function` of this package.
The code is imported only when a model of the family is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any

from vramwise.bundled import bundled_json
from vramwise.errors import VramwiseError
from vramwise.models.families.base import Block, Mixture, ModelType, model_type
from vramwise.models.families.layout import Family, Layout
from vramwise.models.families.parts import Parameter
from vramwise.types import ModelSpec
from vramwise.types.model import Trace

__all__ = ["Family", "all_families", "all_model_types", "block_of", "family_of", "find_type", "layout_of"]

_LAYOUT_CODE = ("block", "by_layer", "after_tables", "after")  # keys of an entry whose values are `module.function`
# For a model_type that no family lists: it is read as llama, without default sizes.
_UNKNOWN_DEFAULTS = {"hidden_act": "silu", "tie_word_embeddings": False}


@cache
def _entries() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = bundled_json("models/families/families.json")
    return found


@cache
def _families_by_type() -> dict[str, str]:
    return {kind: name for name, entry in _entries().items() for kind in entry["types"]}


@cache
def _family(name: str) -> Family:
    entry = _entries()[name]
    block = _block(Block(), entry.get("block", {}))
    layout = {key: _function(value) if key in _LAYOUT_CODE else value for key, value in entry.get("layout", {}).items()}
    return Family(
        name=name,
        types={kind: _type(block, entry["types"], kind) for kind in entry["types"]},
        block=block,
        layout=Layout(**layout),
        reads=entry.get("reads", "decoder"),
        measured=entry.get("measured", True),
        coarse=entry.get("coarse", ""),
    )


def _type(block: Block, rows: Mapping[str, Mapping[str, Any]], name: str) -> ModelType:
    row = _whole(rows, name)
    if "block" in row:
        row["block"] = _block(block, row["block"])
    for key in ("settles", "kv_heads"):
        if "." in row.get(key, ""):
            row[key] = _function(row[key])
    return model_type(**{key: _as_tuple(value) for key, value in row.items()})


def _whole(rows: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, Any]:
    """Return a row, completed with the values of the row that its `like` names."""
    row = {key: value for key, value in rows[name].items() if key not in ("like", "note")}
    return {**_whole(rows, rows[name]["like"]), **row} if "like" in rows[name] else row


def _block(block: Block, row: Mapping[str, Any]) -> Block:
    fields = {key: _as_tuple(value) for key, value in row.items()}
    if "mixture" in fields:
        fields["mixture"] = Mixture(**fields["mixture"])
    return replace(block, **fields)


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _function(name: str) -> Any:
    module, _, function = name.partition(".")
    return getattr(import_module(f"{__name__}.{module}"), function)


def all_families() -> Iterator[Family]:
    """Return an iterator over all families."""
    return map(_family, _entries())


def all_model_types() -> dict[str, tuple[Family, ModelType]]:
    """Return the family and facts of every known model_type."""
    return {name: (family, kind) for family in all_families() for name, kind in family.types.items()}


def find_type(model_type: str) -> tuple[Family, ModelType] | None:
    """Return the family and facts of a model_type, or None if no family lists it."""
    name = _families_by_type().get(model_type)
    return None if name is None else (_family(name), _family(name).types[model_type])


def assumed_type() -> tuple[Family, ModelType]:
    """Return the family and facts assumed for a model_type that no family lists: llama, without default sizes."""
    llama, kind = _family("llama"), _family("llama").types["llama"]
    return llama, replace(kind, defaults=_UNKNOWN_DEFAULTS)


def family_of(model: ModelSpec) -> Family:
    """Return the model's family. Raises VramwiseError if it is unknown."""
    if model.trace is not None:
        from vramwise.models.families.traced import traced_family  # only a few models need it

        return traced_family(model.trace)
    if model.family not in _entries():
        raise VramwiseError(f"unknown parameter layout for the family '{model.family}' of {model.name}")
    return _family(model.family)


def recorded_parameters(model: ModelSpec) -> tuple[Parameter, ...] | None:
    """Return the parameters of a traced model, or None if the model is not traced."""
    if model.trace is None:
        return None
    from vramwise.models.families.traced import traced_parameters

    return traced_parameters(model.trace)


def with_layers(trace: Trace, chosen: tuple[int, ...]) -> Trace:
    """Return the trace of the model with only these layers."""
    from vramwise.models.families.traced import with_layers

    return with_layers(trace, chosen)


def layout_of(model: ModelSpec) -> Layout:
    """Return the parameter layout of the model's family."""
    return family_of(model).layout


def block_of(model: ModelSpec) -> Block:
    """Return the facts about the model's block: those of its model_type if it has any, otherwise its family's."""
    family = family_of(model)
    kind = family.types.get(model.model_type)
    return family.block if kind is None or kind.block is None else kind.block
