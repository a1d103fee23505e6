"""Results of evaluating an expression: a value, a call, a collection of them, or what is missing."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from vramwise.documents.python.scopes import Site
from vramwise.limits.meter import TooLarge, charge, measure

_LONGEST_NOTE = 300
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
    # The flag of the command line whose value it is.
    word: str = ""
    _size: int = field(default=0, init=False, compare=False, repr=False)

    @property
    def size(self) -> int:
        """Its characters, leaves and notes."""
        if not self._size:
            object.__setattr__(self, "_size", measure(self.value) + len(self.notes))
        return self._size


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
    # What it is the length of.
    counted: str = ""
    size: ClassVar[int] = 1


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
    size: ClassVar[int] = 1

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
    # Counted once: its leaves may be shared, and be many more than there are objects.
    size: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Count."""
        object.__setattr__(self, "size", _size(self.items.values()) + len(self.unknown))


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """A list, tuple or set."""

    items: tuple[Result, ...]
    node: ast.expr | None = None
    size: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Count."""
        object.__setattr__(self, "size", _size(self.items))


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An object with known attributes: parsed arguments, a dataclass. `open`: it may have other attributes.

    `line`: where a name of another module is used.
    """

    name: str
    items: Mapping[str, Result]
    open: bool = False
    line: int = 0
    size: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Count."""
        object.__setattr__(self, "size", _size(self.items.values()))


Result = Value | Missing | Called | Entries | Items | Record


def _size(parts: Iterable[Result]) -> int:
    return 1 + sum(one.size + 1 for one in parts)


def plain(result: Result) -> Value | Missing:
    """Return the plain value of a result; Missing if a part of it is unknown, or if it is too large."""
    if isinstance(result, Value | Missing):
        return result
    if isinstance(result, Entries | Items):
        try:
            charge(result.size)
        except TooLarge as error:
            return Missing(name="a list", line=getattr(result.node, "lineno", 0), why=str(error))
        notes: dict[str, None] = {}
        value = _built(result, notes)
        return value if isinstance(value, Missing) else Value(value=value, node=result.node, notes=tuple(notes))
    name = result.name
    if isinstance(result, Called):
        return Missing(name=name, line=result.node.lineno, why=f"it calls {name}, and scripts are not run")
    holder, _, last = name.rpartition(".")
    why = f"{last} comes from {holder}, another file" if result.open and holder else f"{name} is known only at run time"
    return Missing(name=last, line=result.line, why=why)


def _built(result: Result, notes: dict[str, None]) -> Any:
    """Return the value of a result that was charged for, or the first Missing in it; collects its notes."""
    if isinstance(result, Value):
        notes.update(dict.fromkeys(result.notes))
        return result.value
    if isinstance(result, Entries):
        held = {}
        for key, one in result.items.items():
            held[key] = _built(one, notes)
            if isinstance(held[key], Missing):
                return held[key]
        return held
    if isinstance(result, Items):
        parts = []
        for one in result.items:
            parts.append(_built(one, notes))
            if isinstance(parts[-1], Missing):
                return parts[-1]
        return parts
    return plain(result)


def merged(*notes: tuple[str, ...]) -> tuple[str, ...]:
    """Return several results' notes, each once."""
    if not any(notes):
        return ()
    charge(sum(map(len, notes)))
    return tuple(dict.fromkeys(note for some in notes for note in some))


def said(value: Any) -> str:
    """Return a value as a note shows it; a long one is cut, because every flag may have it."""
    if isinstance(value, str) and len(value) > _LONGEST_NOTE:
        return f"{value[:_LONGEST_NOTE]!r}…"
    return repr(value) if measure(value) <= _LONGEST_NOTE else "a long value"
