"""Load Axolotl's config schema from an unpacked wheel, without torch, transformers or Axolotl's own start-up.

Knows how to make the schema modules importable (heavy imports become empty stand-ins) and how to write a pydantic type
in the grammar of `vramwise.trainers.value_types`. Does not know what vramwise does with the facts.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import types
import typing
from collections.abc import Mapping
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, Literal
from unittest.mock import MagicMock

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

_HEAVY = ("torch", "transformers", "accelerate", "PIL", "packaging")
_STAND_INS = (
    "axolotl.utils.logging",
    "axolotl.utils.datasets",
    "axolotl.utils.distributed",
    "axolotl.utils.dict",
    "axolotl.integrations.base",
    "axolotl.integrations.kd.utils",
)
# Packages whose `__init__` holds models: the second and third up to 0.7.
_MODELS = (
    "axolotl.utils.schemas.internal",
    "axolotl.utils.config.models.input.v0_4_1",
    "axolotl.utils.config.models.internals",
)
# The module of transformers' enumerations: types of keys up to 0.17, whose names are checked elsewhere.
_ELSEWHERE = "transformers"
_BOUNDS = ("ge", "gt", "le", "lt")

# Fields whose validator decides on the raw value before the declared type is looked at.
BY_VALIDATOR = {
    "large_head_attention": "caseless_one_of(auto,sdpa,triton_flash)?",
    "image_resize_algorithm": "caseless_one_of(bilinear,bicubic,lanczos)|int(ge=0,le=5)?",
    # text must be a number; the declared type is any text
    "learning_rate": "number_text|float",
    # a text is split at its commas, every item is made a text
    "export.quantize": "str|list?",
    # the numbers of the two types, from before they had names
    "mora.mora_type": "one_of(sharing,rope)|int(ge=1,le=1)|int(ge=6,le=6)",
    # removed from the data before types are checked
    **dict.fromkeys(
        (
            "xformers_attention",
            "sage_attention",
            "flex_attention",
            "flash_attention",
            "sdp_attention",
            "eager_attention",
        ),
        "any",
    ),
}
_AO_DTYPE = "one_of(int4,int8,float8_e4m3fn,fp8,float8,nvfp4,mxfp4,ternary)"


class Resampling(IntEnum):
    """Pillow's resize filters, by their public numbers."""

    NEAREST = 0
    LANCZOS = 1
    BILINEAR = 2
    BICUBIC = 3
    BOX = 4
    HAMMING = 5


class _Stand(types.ModuleType):
    """A module that has whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=f"{self.__name__}.{name}")


class _Finder:
    def __init__(self, root: Path, names: Mapping[str, list[str]]) -> None:
        self.root = root
        pairs = {kind: [(name.upper(), name) for name in members] for kind, members in names.items()}
        self.names = [Enum(kind, members, type=str, module=_ELSEWHERE) for kind, members in pairs.items()]

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        heavy = name.split(".")[0] in _HEAVY or name in _STAND_INS
        package = self.root / Path(*name.split("."))
        # Packages are emptied: their __init__ would pull in the trainer. The schema files themselves are loaded.
        emptied = name.startswith("axolotl") and package.is_dir() and not name.startswith(_MODELS)
        if not (heavy or emptied):
            return None
        spec = importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        spec.submodule_search_locations = [str(package)] if emptied else []
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        stand = _Stand(spec.name)
        if spec.name == "PIL.Image":
            stand.Resampling = Resampling  # type: ignore[attr-defined]
        if spec.name.split(".")[0] == "transformers":  # up to 0.17, types of keys whose names are checked elsewhere
            stand.OptimizerNames, stand.SchedulerType = self.names  # type: ignore[attr-defined]
        return stand

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


def load_schema(root: Path, names: Mapping[str, list[str]]) -> type[BaseModel]:
    """The config model of the Axolotl unpacked in `root` (the folder that holds `axolotl/`).

    `names`: the optimizers and schedulers of transformers.
    """
    sys.meta_path.insert(0, _Finder(root, names))  # type: ignore[arg-type]
    sys.path.insert(0, str(root))
    older = (root / "axolotl/utils/config/models/input/v0_4_1").is_dir()
    module = "axolotl.utils.config.models.input.v0_4_1" if older else "axolotl.utils.schemas.config"
    model: type[BaseModel] = importlib.import_module(module).AxolotlInputConfig
    return model


def load_plugin_args(folder: str, name: str) -> type[BaseModel]:
    """The key model that a plugin of `axolotl.integrations` brings."""
    model: type[BaseModel] = getattr(importlib.import_module(f"axolotl.integrations.{folder}.args"), name)
    return model


class Writer:
    """Writes fields in the grammar; nested models become named blocks, collected in `blocks`."""

    def __init__(self) -> None:
        self.blocks: dict[str, dict[str, str]] = {}
        self.closed: list[str] = []
        self.aliases: dict[str, dict[str, str]] = {}
        self.defaults: dict[str, dict[str, Any]] = {}

    def model(self, model: type[BaseModel], where: str) -> dict[str, str]:
        """Every key of a model with its type; aliases are noted under `where`."""
        keys = {}
        model.model_rebuild()  # annotations that name a class further down in the file
        for name, field in model.model_fields.items():
            keys[name] = self.field(name, field, where)
            for alias in _aliases(field):
                if alias != name:
                    self.aliases.setdefault(where, {})[alias] = name
        return dict(sorted(keys.items()))

    def field(self, name: str, field: FieldInfo, where: str) -> str:
        """One field's type."""
        key = f"{where}.{name}".lstrip(".")
        return BY_VALIDATOR.get(key) or self.type(field.annotation, tuple(field.metadata), key)

    def type(self, annotation: Any, metadata: tuple[Any, ...], where: str) -> str:
        """A type in the grammar; `where` names the block that a nested model becomes."""
        origin, args = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is typing.Annotated:
            return self.type(args[0], (*metadata, *args[1:]), where)
        if origin in (typing.Union, types.UnionType):
            return self.union(args, metadata, where)
        if annotation is Any:
            return "any"
        if origin is Literal:
            return f"one_of({','.join(str(value) for value in args)})"
        if origin in (list, dict, tuple) or annotation in (list, dict):
            return self.container(origin or annotation, args, metadata, where)
        if isinstance(annotation, type) and issubclass(annotation, Enum):
            return "str" if annotation.__module__ == _ELSEWHERE else _enumeration(annotation)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return self.block(annotation, where)
        return f"{annotation.__name__}{_constraints(metadata)}"

    def union(self, members: tuple[Any, ...], metadata: tuple[Any, ...], where: str) -> str:
        """Alternatives; null is a trailing question mark. Several models: one open block with all their keys."""
        written: list[str] = []
        several = sum(isinstance(member, type) and issubclass(member, BaseModel) for member in members) > 1
        for member in members:
            if member is type(None):
                continue
            one = self.type(member, metadata, where)
            if several:
                one = one.replace("block(", "open(")
            if one.endswith("?"):
                raise TypeError(f"{where}: nested optional")
            if one not in written:
                written.append(one)
        optional = "?" if type(None) in members and written != ["any"] else ""
        return "|".join(written) + optional

    def container(self, origin: type, args: tuple[Any, ...], metadata: tuple[Any, ...], where: str) -> str:
        """Lists, tuples and mappings with what they hold."""
        inner = f"{where}[]" if origin is list else where
        held = [self.type(arg, (), inner) for arg in args]
        if not held:
            return origin.__name__
        least = next((meta.min_length for meta in metadata if hasattr(meta, "min_length")), None)
        return f"{origin.__name__}[{','.join(held)}]" + (f"(min={least})" if least else "")

    def block(self, model: type[BaseModel], where: str) -> str:
        """A nested model. Alternatives under the same key are merged: a key is known if any of them has it."""
        if model.model_config.get("extra") == "forbid":
            self.closed.append(where)
        fields = self.model(model, where)
        if _is_quantisation(model):
            fields |= {"activation_dtype": _AO_DTYPE + "?", "weight_dtype": _AO_DTYPE}
        known = self.blocks.setdefault(where, {})
        for name, written in fields.items():
            known[name] = written if known.get(name, written) == written else "any"
        self.blocks[where] = dict(sorted(known.items()))
        self.note_defaults(where, plain_defaults(model))
        return f"block({where})"

    def note_defaults(self, where: str, found: dict[str, Any]) -> None:
        """The defaults inside a block; alternatives under one key that differ have none in common."""
        earlier = self.defaults.get(where, found)
        kept = {name: value for name, value in found.items() if earlier.get(name) == value}
        if kept or where in self.defaults:
            self.defaults[where] = kept


def plain_defaults(model: type[BaseModel]) -> dict[str, Any]:
    """The defaults that are not null. A default made at run time is left out."""
    plain = {}
    for name, field in sorted(model.model_fields.items()):
        if field.default is not PydanticUndefined and field.default is not None:
            plain[name] = _plain(field.default)
    return plain


def _plain(value: Any) -> Any:
    """An enumerated value as a config writes it: its text, or the member's name where it stands for an object."""
    if not isinstance(value, Enum):
        return value
    return value.value if isinstance(value.value, str | int) else value.name


def _is_quantisation(model: type[BaseModel]) -> bool:
    return model.__module__.endswith(".quantization")


def _aliases(field: FieldInfo) -> list[str]:
    found: list[str] = [field.alias] if field.alias else []
    choices = getattr(field.validation_alias, "choices", ())
    return found + [choice for choice in choices if isinstance(choice, str)]


def _enumeration(enum: type[Enum]) -> str:
    if issubclass(enum, IntEnum):
        return f"int(ge={min(enum)},le={max(enum)})"
    return f"one_of({','.join(str(member.value) for member in enum)})"


def _constraints(metadata: tuple[Any, ...]) -> str:
    found = []
    for meta in metadata:
        found += [f"{bound}={getattr(meta, bound)}" for bound in _BOUNDS if getattr(meta, bound, None) is not None]
        if getattr(meta, "pattern", None):
            found.append(f"starts={meta.pattern.lstrip('^')}")
    return f"({','.join(found)})" if found else ""
