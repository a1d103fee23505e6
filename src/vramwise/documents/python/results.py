"""Results of evaluating an expression: a value, a call, a collection of them, or what is missing."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vramwise.documents.python.scopes import Site

# The note of objects that a parser fills.
FROM_COMMAND_LINE = "its settings come from the command line; those that --args does not give have their defaults"


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A plain value. `node`: the literal in the source, which an edit would change; None if it is computed.

    `notes`: the assumptions behind it, as sentences.
    """

    value: Any
    node: ast.expr | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """An unknown value. `name`: what --set would supply. `either`: possible values. `sides`: possible calls."""

    name: str
    line: int
    why: str
    either: tuple[Any, ...] = ()
    sides: tuple[Called, ...] = ()
    # An environment variable without a default: None unless it is set.
    environment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """The result of a call that is not evaluated. `name`: as imported (`trl.SFTConfig`) or as written.

    `assigned`: attributes that were assigned afterwards.
    """

    name: str
    node: ast.Call
    site: Site
    assigned: Mapping[str, Result] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    # The last part of `name` is an attribute of the call's result.
    attribute: bool = False

    @property
    def last(self) -> str:
        """The last part of the name: `from_pretrained`."""
        return self.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """A mapping with text keys. `unknown`: its unknown parts."""

    items: Mapping[str, Result]
    node: ast.expr | None = None
    unknown: tuple[Missing, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """A list, tuple or set."""

    items: tuple[Result, ...]
    node: ast.expr | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An object with known attributes: parsed arguments, a dataclass. `open`: it may have other attributes.

    `line`: where a name of another module is used.
    """

    name: str
    items: Mapping[str, Result]
    open: bool = False
    line: int = 0


Result = Value | Missing | Called | Entries | Items | Record


def plain(result: Result) -> Value | Missing:
    """Return the plain value of a result; Missing if a part of it is unknown."""
    if isinstance(result, Value | Missing):
        return result
    if isinstance(result, Entries):
        parts = {key: plain(one) for key, one in result.items.items()}
        lacking = next((one for one in parts.values() if isinstance(one, Missing)), None)
        if lacking is not None:
            return lacking
        values = {key: one.value for key, one in parts.items() if isinstance(one, Value)}
        return Value(value=values, node=result.node, notes=_notes(parts.values()))
    if isinstance(result, Items):
        found = [plain(one) for one in result.items]
        lacking = next((one for one in found if isinstance(one, Missing)), None)
        if lacking is not None:
            return lacking
        return Value(
            value=[one.value for one in found if isinstance(one, Value)], node=result.node, notes=_notes(found)
        )
    name = result.name
    if isinstance(result, Called):
        return Missing(name=name, line=result.node.lineno, why=f"it calls {name}, and scripts are not run")
    holder, _, last = name.rpartition(".")
    why = f"{last} comes from {holder}, another file" if result.open and holder else f"{name} is known only at run time"
    return Missing(name=last, line=result.line, why=why)


def _notes(parts: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(note for one in parts if isinstance(one, Value) for note in one.notes))
