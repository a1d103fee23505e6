"""Collects one training: keys with their values and places, and what is unknown."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vramwise.documents.python.evaluate import Evaluator
from vramwise.documents.python.results import Called, Missing, Result, Value, plain
from vramwise.documents.python.scopes import Site
from vramwise.documents.python.source import Source
from vramwise.limits.meter import TooLarge, charge, work
from vramwise.trainers.arguments.parsing import FALSE, TRUE
from vramwise.trainers.arguments.vocabulary import kinds_of, training_arguments
from vramwise.types import Assumed, Home, KeyPath, Span, Stack, Unsaid


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A call that trains."""

    call: ast.Call
    site: Site
    name: str  # the name of the library's trainer class
    trainer: str
    kind: str


@dataclass(slots=True, kw_only=True)
class Collected:
    """The settings of one training, collected as keys."""

    found: Found
    evaluator: Evaluator
    source: Source
    said: Mapping[str, Any]
    # Returns the content of a file beside the script; None if there is none.
    load: Callable[[str], Mapping[str, Any] | None] = lambda _: None
    values: dict[str, Any] = field(default_factory=dict)
    spans: dict[KeyPath, Span] = field(default_factory=dict)
    homes: dict[str, Home] = field(default_factory=dict)
    unsaid: list[Unsaid] = field(default_factory=list)
    assumed: list[Assumed] = field(default_factory=list)
    facts: dict[str, int] = field(default_factory=dict)
    unsloth: bool = False
    # A method has set the dtype of the weights, whatever they were loaded as.
    cast: bool = False
    # Adapters further down the chain were merged into the weights.
    merged: bool = False
    depth: int = 0
    # Key → the flag of the command line whose value it is; "": any argument is one.
    words: dict[str, str] = field(default_factory=dict)
    # Key → the role of a call and its argument.
    written: dict[str, tuple[str, str]] = field(default_factory=dict)

    def assume(self, about: str, *texts: str) -> None:
        """Add assumptions about a key, or about something else of the script."""
        self.assumed += [Assumed(about, text) for text in texts]

    def is_open(self, key: str) -> bool:
        """Return whether a key is given but its value is unknown."""
        work(len(self.unsaid))
        return any(one.key == key for one in self.unsaid)

    def owner(self, called: Called) -> Result | None:
        """Return the object that a method is called on; None for a function."""
        function = called.node.func
        return self.evaluator.evaluate(function.value, called.site) if isinstance(function, ast.Attribute) else None

    def add(self, key: str, result: Result, *, role: str = "", argument: str = "") -> None:
        """Set a key to the value of an argument, with its place."""
        if key in self.said:
            self.values[key] = self.said[key]
            self.assume(key, f"{self.said[key]!r} (--set)")
            return
        self.evaluator.meter.begin_value()  # what another setting has used up is not missing here
        found = plain(result)
        if isinstance(found, Missing):
            self.unsaid.append(unsaid_of(key, found))
            return
        try:
            charge(found.size + sum(len(key) + len(note) for note in found.notes))
        except TooLarge as error:
            lacking = Missing(name=key, line=self.found.call.lineno, why=str(error))
            self.unsaid.append(unsaid_of(key, lacking))
            return
        self.values[key] = _switch(key, found.value) if found.word else _as_yaml(found.value)
        self.words |= {key: found.word} if found.word else {}
        self.assume(key, *found.notes)
        home = self.homes.get(role)
        if home is None:
            return
        written = found.node is not None and getattr(found.node, "end_lineno", None) is not None
        value = self.source.span(found.node) if found.node is not None and written else None
        if argument in home.arguments:
            start, end = home.arguments[argument]
            self.written[key] = (role, argument)
            at = self.source.text.find("=", start, end)
            inside = (at + 1 + len(self.source.text[at + 1 : end]) - len(self.source.text[at + 1 : end].lstrip()), end)
            first, last = value or inside
            self.spans[(key,)] = Span(
                key_start=start, key_end=at, value_start=first, value_end=last, shared=value is None
            )
        elif home.unpacks:  # a second argument of this name in the call would be an error
            first, last = value or home.others[-1]
            self.spans[(key,)] = Span(
                key_start=first, key_end=first, value_start=first, value_end=last, shared=value is None
            )

    def put(self, key: str, value: Any) -> None:
        """Set a key that follows from a call, unless it is already set."""
        if key in self.said:
            value = self.said[key]
        self.values.setdefault(key, value)

    def home(self, role: str, called: Called) -> None:
        """Record the first call of each role: edits of its arguments go there."""
        node = called.node
        if role in self.homes or node.end_lineno is None or getattr(node.func, "end_lineno", None) is None:
            return
        text = self.source.text
        _, end = self.source.span(node)
        _, function_end = self.source.span(node.func)
        opening = text.find("(", function_end, end)
        if opening < 0:
            return
        unpacked = [one for one in node.keywords if one.arg is None]
        self.homes[role] = Home(
            name=called.last,
            line=node.lineno,
            open_end=opening + 1,
            close_start=end - 1,
            arguments={one.arg: self.source.span(one) for one in node.keywords if one.arg is not None},
            others=(*map(self.source.span, node.args), *map(self.source.span, unpacked)),
            unpacks=bool(unpacked),
        )

    def argument_line(self, role: str, argument: str) -> int:
        """Return the line of an argument; that of the trainer's call if it is not written in the call of its role."""
        home = self.homes.get(role)
        if home is None or argument not in home.arguments:
            return self.found.call.lineno
        return self.source.text.count("\n", 0, home.arguments[argument][0]) + 1

    def lacking(self, key: str, unknown: list[Missing]) -> None:
        """Record what is unknown about a call's arguments."""
        work(len(unknown))
        self.unsaid += [unsaid_of(key, one) for one in unknown]


def _switch(key: str, value: Any) -> Any:
    """Return a value of the command line as a config would hold it: `yes` and `no` of a switch are true and false."""
    is_word = isinstance(value, str) and value.lower() in TRUE | FALSE
    written = training_arguments(Stack(releases={})).type_of(key) if is_word else None
    return value.lower() in TRUE if written is not None and kinds_of(written) == {"bool"} else _as_yaml(value)


def is_none(result: Result) -> bool:
    """Return whether a result is known to be None."""
    return isinstance(result, Value) and result.value is None


def is_true(result: Result | None) -> bool:
    """Return whether a result is known and counts as true."""
    found = plain(result) if result is not None else None
    return isinstance(found, Value) and bool(found.value)


def unsaid_of(key: str, missing: Missing) -> Unsaid:
    """Return a missing result as the open value of a key."""
    return Unsaid(key=key, name=missing.name, line=missing.line, why=missing.why, either=missing.either)


def made_elsewhere(key: str, called: Called) -> Unsaid:
    """Return the result of a call that is not followed as the open value of a key."""
    name = called.name.partition("[")[0]
    return Unsaid(key=key, name=key, line=called.node.lineno, why=f"it comes from {name}(), which is not run")


def _as_yaml(value: Any) -> Any:
    """Return a value as a config would hold it."""
    if isinstance(value, tuple | list | set | frozenset):
        return [_as_yaml(one) for one in value]
    if isinstance(value, Mapping):
        return {str(key): _as_yaml(held) for key, held in value.items()}
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
