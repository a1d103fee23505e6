"""Answers calls of known functions without running them.

Arithmetic, paths, the environment, files beside the script, parsed arguments, and functions that depend on the card.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vramwise.documents.python.combine import shown
from vramwise.documents.python.command_line import CommandLine, as_entries, written_here
from vramwise.documents.python.evaluate import Evaluator
from vramwise.documents.python.growth import FUNCTIONS, METHODS, as_text, size_of
from vramwise.documents.python.objects import made_object
from vramwise.documents.python.results import (
    FROM_COMMAND_LINE,
    Called,
    Entries,
    Items,
    Missing,
    Record,
    Result,
    Value,
    merged,
    plain,
    said,
)
from vramwise.documents.python.scopes import WITHOUT
from vramwise.limits.meter import charge

_SIMPLE: Mapping[str, Callable[..., Any]] = {
    **{one.__name__: one for one in (int, float, str, bool, min, max, round, abs, len, list, tuple)},
    "os.path.join": lambda *parts: "/".join(str(part).rstrip("/") for part in parts),
    "os.path.expanduser": str,
    "os.path.abspath": str,
    "pathlib.Path": lambda *parts: "/".join(str(part) for part in parts),
    "Path": lambda *parts: "/".join(str(part) for part in parts),
    "math.ceil": lambda value: -(-value // 1) if isinstance(value, int) else int(value) + (value > int(value)),
    "math.floor": lambda value: int(value // 1),
}
_BF16 = frozenset({"is_bf16_supported", "is_bfloat16_supported", "is_torch_bf16_gpu_available", "is_bf16_available"})
# Questions about devices that are neither NVIDIA's nor AMD's.
_OF_OTHER_DEVICES = re.compile(
    r"torch\.(?:backends\.)?(?:xpu|mps|npu|hpu|mlu|musa)\.is_available|(?:.*\.)?is_(?:torch_)?(?:xpu|mps|npu|hpu|mlu|musa)_available"
)
_ON_LINUX = "Linux is assumed"
_OF_LINUX = {"sys.platform": "linux", "os.name": "posix"}
_NAMESPACES = frozenset({"SimpleNamespace", "Namespace", "EasyDict", "edict", "DictConfig", "Munch", "AttrDict"})
_OPENERS = frozenset({"io.open", "codecs.open", "gzip.open"})
_LOADERS = frozenset({"safe_load", "load", "full_load", "loads"})
_PARSES = frozenset({"parse_args", "parse_known_args"})
_PARSES_CLASSES = frozenset(
    {
        "parse_args_into_dataclasses",
        "parse_args_and_config",
        "parse_dict",
        "parse_json_file",
        "parse_yaml_file",
        "parse",
    }
)
# Helpers of QLoRA's script and its many copies, which return the names of all linear layers.
_ALL_LINEAR = re.compile(r"(?:find|get)_(?:all_)?linear_(?:names|modules|layers|module_names|layer_names)")
# Reading a character of YAML takes as long as this many units.
_YAML_UNITS = 8
_RANKS = {"WORLD_SIZE": "gpus", "LOCAL_RANK": "rank", "RANK": "rank"}


@dataclass(slots=True, kw_only=True)
class Functions(CommandLine):
    """Answers calls. `bf16`, `capability` and `gpus` describe the card; None if none is given.

    `defaults`: attributes of library classes that no call sets. `nothing_without`: functions that return None unless
    one of these attributes of their argument is set.
    """

    bf16: bool | None = None
    capability: tuple[int, int] | None = None
    gpus: int = 1
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    nothing_without: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    parsed: dict[str, Result] = field(default_factory=dict)

    def __call__(self, evaluator: Evaluator, called: Called) -> Result | None:
        """Return the result of a call; None if the function is not known."""
        if called.attribute:
            return self._default(called)
        last = called.last
        if last in _BF16:
            return self._of_card(True if self.bf16 is None else self.bf16)
        if last == "get_device_capability":
            major, minor = self.capability or ((8, 0) if self.bf16 is not False else (7, 5))
            return Items(items=(self._of_card(major), self._of_card(minor)))
        if called.name == "torch.cuda.is_available":
            return Value(value=True)
        if called.name == "torch.device" and called.node.args:
            held = evaluator.value(called.node.args[0], called.site)
            return held if isinstance(held, Value) and isinstance(held.value, str) else None
        if called.name == "platform.system":
            return Value(value="Linux", notes=(_ON_LINUX,))
        if _OF_OTHER_DEVICES.fullmatch(called.name):
            return Value(value=False)
        if last == "device_count" and "cuda" in called.name:
            return Value(value=self.gpus)
        if last in _PARSES and self.flags:
            record = self.parsed_flags(evaluator, called)
            return Items(items=(record, Items(items=()))) if last == "parse_known_args" else record
        if last in _PARSES_CLASSES:
            return self.filled_classes(evaluator, called)
        if last in self.nothing_without and called.node.args:
            return self._nothing(evaluator, called)
        return self._pure(evaluator, called)

    def _nothing(self, evaluator: Evaluator, called: Called) -> Value | None:
        """Return None as a value, with its assumptions, if all attributes that would change it are off."""
        notes: tuple[str, ...] = ()
        for name in self.nothing_without[called.last]:
            held = evaluator.attribute(called.node.args[0], name, called.site)
            if not isinstance(held, Value) or held.value:
                return None
            notes = merged(notes, held.notes)
        return Value(value=None, notes=notes)

    def of_library(self, name: str, line: int) -> Result | None:
        """Return `sys.argv`: the script's name and its arguments; None for other names."""
        if name in _OF_LINUX:
            return Value(value=_OF_LINUX[name], notes=(_ON_LINUX,))
        if name != "sys.argv":
            return None
        note = "no arguments are given (--args)" if not self.words else f"the arguments are {self.words!r} (--args)"
        return Items(items=tuple(Value(value=one, notes=(note,)) for one in ("train.py", *self.words)))

    def _default(self, called: Called) -> Result | None:
        """Return the default of an attribute that the call of a library's class does not set, or None."""
        owner, _, attribute = called.name.rpartition(".")
        known = self._known(replace(called, name=owner))
        if attribute not in known:
            return None
        if FROM_COMMAND_LINE not in called.notes:
            return Value(value=known[attribute])
        note = f"--{attribute} is not given: {known[attribute]!r} is its default"
        return Value(value=known[attribute], notes=(note,))

    def _known(self, called: Called) -> Mapping[str, Any]:
        return self.defaults.get(called.last, {})

    def _of_card(self, value: Any) -> Value:
        said = () if self.bf16 is not None else ("no card given: one with bf16 is assumed",)
        return Value(value=value, notes=said)

    def _pure(self, evaluator: Evaluator, called: Called) -> Result | None:
        last = called.last
        if called.name in ("os.environ.get", "os.getenv", "environ.get", "getenv"):
            return self._environment(evaluator, called)
        if called.name == "getattr" and len(called.node.args) >= 2:
            return self._attribute(evaluator, called)
        if last == "cast" and len(called.node.args) == 2 and called.name in ("cast", "typing.cast"):
            return evaluator.evaluate(called.node.args[1], called.site)
        if called.name == WITHOUT:
            return _without(evaluator, called)
        if _ALL_LINEAR.fullmatch(last):
            note = f"{last} is taken to name every linear layer but the head (line {called.node.lineno})"
            return Value(value="all-linear", notes=(note,))
        if last in ("dict", *_NAMESPACES) or called.name.endswith("OmegaConf.create"):
            return self._mapping(evaluator, called)
        if last in ("vars", "asdict", "to_container") and called.node.args:
            held = evaluator.evaluate(called.node.args[0], called.site)
            if isinstance(held, Called):
                unset = {name: self._default(replace(held, name=f"{held.name}.{name}")) for name in self._known(held)}
                items = {name: one for name, one in unset.items() if one is not None}
                charge(len(held.assigned))
                return Entries(items={**items, **held.assigned})
            charge(len(held.items) if isinstance(held, Record | Entries) else 0)
            return Entries(items=held.items) if isinstance(held, Record | Entries) else None
        if (
            last in _LOADERS
            and called.node.args
            and called.name.partition(".")[0] in ("yaml", "json", "OmegaConf", "omegaconf")
        ):
            return self._file(evaluator, called)
        if isinstance(called.node.func, ast.Attribute):
            found = self._method(evaluator, called, called.node.func)
            if found is not None:
                return found
        made = made_object(evaluator, called)
        if made is not None:
            return made
        return _simple(evaluator, called)

    def _environment(self, evaluator: Evaluator, called: Called) -> Result | None:
        values = [evaluator.value(one, called.site) for one in called.node.args]
        default = next((one.value for one in called.node.keywords if one.arg == "default"), None)
        if default is not None:
            values.append(evaluator.value(default, called.site))
        if not values or not isinstance(values[0], Value):
            return None
        charge(as_text(values[0].value))
        name = str(values[0].value)
        if name in evaluator.said:
            return Value(value=evaluator.said[name], notes=(f"{name} = {evaluator.said[name]!r} (--set)",))
        if name in _RANKS and (self.gpus > 1 or len(values) < 2):  # with one process, no launcher sets them
            return Value(value=str(self.gpus if _RANKS[name] == "gpus" else 0))
        line = called.node.lineno
        if len(values) < 2:
            return Missing(name=name, line=line, why=f"{name} is an environment variable", environment=True)
        held = values[1]
        if isinstance(held, Missing):
            return held
        if name in _RANKS:
            return held
        note = f"{name} is not set: {said(held.value)} is used (line {line})"
        return Value(value=held.value, notes=(*held.notes, note))

    def _attribute(self, evaluator: Evaluator, called: Called) -> Result | None:
        """Evaluate `getattr(torch, "bfloat16")` or `getattr(args, "lr", 1e-4)`."""
        holder = evaluator.evaluate(called.node.args[0], called.site)
        name = evaluator.value(called.node.args[1], called.site)
        if isinstance(name, Missing):
            return name
        charge(as_text(name.value))
        if isinstance(holder, Record):
            if str(name.value) in holder.items:
                return holder.items[str(name.value)]
            if holder.name == "torch":
                return Value(value=str(name.value), notes=name.notes)
        if len(called.node.args) > 2:
            return evaluator.evaluate(called.node.args[2], called.site)
        return None

    def _mapping(self, evaluator: Evaluator, called: Called) -> Result | None:
        positional, named, _ = evaluator.arguments(called)
        first = positional[0] if positional else None
        held = first.items if isinstance(first, Entries | Record) else {}
        charge(len(held))
        items = {**held, **named}
        if called.last == "dict":
            return Entries(items=items)
        return Record(name=called.name, items=items)

    def _file(self, evaluator: Evaluator, called: Called) -> Result | None:
        """Return the content of a YAML or JSON file that the script loads."""
        source = evaluator.evaluate(called.node.args[0], called.site)
        if isinstance(source, Called) and source.last in ("read_text", "read"):  # of an open file or a path
            function = source.node.func
            source = evaluator.evaluate(function.value, source.site) if isinstance(function, ast.Attribute) else source
        if isinstance(source, Called) and source.last == "open":
            function = source.node.func
            opened = source.node.args[0] if source.node.args else None
            if isinstance(function, ast.Attribute) and source.name not in _OPENERS:
                opened = function.value  # Path("x").open()
            source = evaluator.evaluate(opened, source.site) if opened is not None else source
        name = plain(source)
        line = called.node.lineno
        if isinstance(name, Missing):
            return name
        if not isinstance(name.value, str):
            return Missing(name="a file", line=line, why="a file is loaded whose name is no text")
        if name.value not in self.parsed:  # parsed once: every use of the name leads here
            self.parsed[name.value] = self._parsed(name.value, line)
        return self.parsed[name.value]

    def _parsed(self, name: str, line: int) -> Result:
        if "\n" in name:
            charge(_YAML_UNITS * len(name))
            return written_here(name, line)
        content = self.load(name)
        if content is None:
            return Missing(name=name, line=line, why=f"{name} is not available here")
        return as_entries(content, f"as {name} says")

    def _method(self, evaluator: Evaluator, called: Called, function: ast.Attribute) -> Result | None:
        """Evaluate `config.get("lr", 1e-4)` of a known mapping, or a method of a known text."""
        if function.attr not in ("get", "items", "copy", *METHODS):
            return None
        holder = evaluator.evaluate(function.value, called.site)
        if function.attr == "get" and isinstance(holder, Entries | Record) and called.node.args:
            key = evaluator.value(called.node.args[0], called.site)
            if isinstance(key, Missing):
                return key
            charge(as_text(key.value))
            if str(key.value) in holder.items:
                return holder.items[str(key.value)]
            if isinstance(holder, Record) and holder.open:
                return None
            if isinstance(holder, Entries) and holder.unknown:  # it may be among the unknown parts
                return replace(holder.unknown[0], name=str(key.value), either=())
            return (
                evaluator.evaluate(called.node.args[1], called.site) if len(called.node.args) > 1 else Value(value=None)
            )
        if function.attr == "copy" and isinstance(holder, Entries | Record):
            return holder
        if isinstance(holder, Value) and isinstance(holder.value, str):
            given = [evaluator.value(one, called.site) for one in called.node.args]
            return None if called.node.keywords else _of_text(holder, function.attr, given)
        return None


def _of_text(text: Value, method: str, given: list[Value | Missing]) -> Value | None:
    """Return the result of a text's method; None if an argument is unknown."""
    values = [one.value for one in given if isinstance(one, Value)]
    if method not in METHODS or len(values) < len(given):
        return None
    charge(size_of(METHODS[method], (text.value, *values)))
    try:
        return Value(value=getattr(text.value, method)(*values), notes=text.notes)
    except Exception:
        return None


def _without(evaluator: Evaluator, called: Called) -> Result:
    """Return a mapping after `pop`."""
    held, key = (evaluator.evaluate(one, called.site) for one in called.node.args)
    name = plain(key)
    if isinstance(held, Entries) and isinstance(name, Value):
        charge(len(held.items) + as_text(name.value))
        return replace(held, items={one: value for one, value in held.items.items() if one != str(name.value)})
    return held


def _simple(evaluator: Evaluator, called: Called) -> Result | None:
    function = _SIMPLE.get(called.name)
    if function is None:
        return None
    given = [evaluator.value(one, called.site) for one in called.node.args]
    lacking = next((one for one in given if isinstance(one, Missing)), None)
    if lacking is not None or called.node.keywords:
        return lacking and replace(lacking, either=(), counted=_counted(called))
    values = [one.value for one in given if isinstance(one, Value)]
    charge(size_of(FUNCTIONS[called.name], values))
    try:
        made = function(*values)
    except Exception:
        return None
    return Value(value=made, notes=merged(*(one.notes for one in given if isinstance(one, Value))))


def _counted(called: Called) -> str:
    """Return what `len(…)` counts; "" for other calls."""
    return shown(called.node.args[0]) if called.name == "len" and called.node.args else ""
