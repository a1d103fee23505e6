"""The classes of a script: their bases, in the file and in libraries, and their fields."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from vramwise.documents.python.flags import fields_of
from vramwise.documents.python.scopes import Scope, dotted
from vramwise.limits.meter import work

# The longest chain of base classes that is followed.
_LONGEST_LINE = 20
# Bases without fields.
_PLAIN = frozenset({"object", "ABC", "Protocol", "Generic", "BaseModel", "NamedTuple"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a class. `default`: None if it has none. `scope`: the class that defines it."""

    default: ast.expr | None
    line: int
    scope: Scope


def class_of(name: str, scope: Scope | None) -> Scope | None:
    """Return the class of the file that a name refers to in a scope, or None."""
    while scope is not None and name not in scope.classes:
        scope = scope.parent
    return None if scope is None else scope.classes[name]


def lineage(scope: Scope) -> tuple[list[Scope], ast.expr | None]:
    """Return a class with its base classes in the file, nearest first, and its first library base class."""
    line: list[Scope] = []
    waiting, library = [scope], None
    while waiting and len(line) < _LONGEST_LINE:
        one = waiting.pop(0)
        line.append(one)
        work(len(one.node.bases) if isinstance(one.node, ast.ClassDef) else 0)
        for base in one.node.bases if isinstance(one.node, ast.ClassDef) else []:
            held = class_of(base.id, one.parent) if isinstance(base, ast.Name) else None
            if held is not None and held is not one:
                waiting.append(held)
            elif held is None and library is None and _last(base) not in _PLAIN:
                library = base
    return line, library


def all_fields(scope: Scope) -> dict[str, Field]:
    """Return the fields of a class, including those of its base classes in the file."""
    found: dict[str, Field] = {}
    for one in reversed(lineage(scope)[0]):
        work(5 * len(one.node.body))
        found |= {name: Field(default=default, line=line, scope=one) for name, default, line in fields_of(one)}
    return found


def enclosing_class(scope: Scope | None) -> Scope | None:
    """Return the class that a scope is inside, or None."""
    while scope is not None and not isinstance(scope.node, ast.ClassDef):
        scope = scope.parent
    return scope


def _last(base: ast.expr) -> str:
    held = base.value if isinstance(base, ast.Subscript) else base  # Generic[T]
    return (dotted(held) or "").rpartition(".")[2]
