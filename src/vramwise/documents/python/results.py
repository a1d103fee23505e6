"""What an expression of a script comes to: a value, a call, a collection of them, or what is missing to know it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vramwise.documents.python.scopes import Site

# A note of objects that a parser fills.
FROM_COMMAND_LINE = "its settings come from the command line; those that --args does not give have their defaults"


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A plain value. `node`: the literal that spells it, where an edit would go; None where it is computed.

    `notes`: what had to be assumed for it, in sentences.
    """

    value: Any
    node: ast.expr | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What cannot be known. `name`: what --set would supply; `either`: values that are possible; `sides`: calls."""

    name: str
    line: int
    why: str
    either: tuple[Any, ...] = ()
    sides: tuple[Called, ...] = ()
    # A variable of the environment without a default: None unless somebody sets it.
    environment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """The result of a call that is not evaluated. `name`: as imported, `trl.SFTConfig`, or as written.

    `assigned`: attributes that were given values afterwards.
    """

    name: str
    node: ast.Call
    site: Site
    assigned: Mapping[str, Result] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    # Asked for an attribute of what the call gives, named last.
    attribute: bool = False

    @property
    def last(self) -> str:
        """The last part of its name: `from_pretrained`."""
        return self.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """A mapping with text keys. `unknown`: parts of it that cannot be known."""

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
    """An object with known attributes: parsed arguments, a dataclass. `open`: others may be there too.

    `line`: where a name of another module is used.
    """

    name: str
    items: Mapping[str, Result]
    open: bool = False
    line: int = 0


Result = Value | Missing | Called | Entries | Items | Record


def plain(result: Result) -> Value | Missing:
    """The plain value of a result; Missing where a part of it is not known."""
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
