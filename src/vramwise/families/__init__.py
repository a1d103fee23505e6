"""One file a model family: its model_types with transformers' defaults, its parameter layout, its block.

A file that has a FAMILY is found by itself; nothing else needs to know of it. Files are read only when a model is asked
for: first those whose name the model_type begins with, all of them where that does not settle it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from vramwise.errors import VramwiseError
from vramwise.families.base import Block, ModelType
from vramwise.families.layout import Family, Layout
from vramwise.types import ModelSpec

__all__ = ["Family", "all_families", "all_model_types", "block_of", "family_of", "find_type", "layout_of"]


@cache
def _names() -> tuple[str, ...]:
    """The modules of this package, wherever it was loaded from: a folder or a zip."""
    return tuple(sorted(found.name for found in iter_modules(__path__)))


@cache
def _family(name: str) -> Family | None:
    found: Family | None = getattr(import_module(f"{__name__}.{name}"), "FAMILY", None)
    return found


def all_families() -> Iterator[Family]:
    """Every family, by name."""
    for name in _names():
        family = _family(name)
        if family is not None:
            yield family


def all_model_types() -> dict[str, tuple[Family, ModelType]]:
    """Every model_type that is known, and the family it is of."""
    return {name: (family, kind) for family in all_families() for name, kind in family.types.items()}


def find_type(model_type: str) -> tuple[Family, ModelType] | None:
    """The family and facts of a model_type; None where no family lists it."""
    likely = (name for name in reversed(_names()) if model_type.startswith(name))
    for family in filter(None, map(_family, likely)):
        if model_type in family.types:
            return family, family.types[model_type]
    return all_model_types().get(model_type)


def family_of(model: ModelSpec) -> Family:
    """The family whose file the model's blocks are in."""
    family = _family(model.family) if model.family in _names() else None
    if family is None:
        raise VramwiseError(f"no parameter layout is known for the family '{model.family}' of {model.name}")
    return family


def layout_of(model: ModelSpec) -> Layout:
    """How the model's family lays out its parameters."""
    return family_of(model).layout


def block_of(model: ModelSpec) -> Block:
    """How the model's block runs: its model_type's own facts, or its family's."""
    family = family_of(model)
    kind = family.types.get(model.model_type)
    return family.block if kind is None or kind.block is None else kind.block
