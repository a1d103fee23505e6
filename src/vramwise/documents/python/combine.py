"""Combines results: branches, mappings, lists and notes; and limits what is computed."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

from vramwise.documents.python.results import Called, Entries, Items, Missing, Result, Value, merged, plain
from vramwise.documents.python.scopes import dotted
from vramwise.limits.meter import charge, work

LARGEST_NUMBER = 2**128
MOST_ITEMS = 1000
# What messages show of an expression; how many nodes those characters can be; what writing a node takes.
_SHOWN, _SHOWN_NODES, _NODE_UNITS = 60, 64, 30


def defaults_of(spec: ast.arguments) -> dict[str, ast.expr]:
    """Return the defaults of parameters, by name."""
    ordered = [*spec.posonlyargs, *spec.args]
    pairs = [*zip(reversed(ordered), reversed(spec.defaults), strict=False)]
    pairs += [(one, held) for one, held in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if held is not None]
    return {one.arg: held for one, held in pairs}


def inner_default(default: ast.expr) -> ast.expr:
    """Return the default inside `typer.Option(8)`; other defaults unchanged."""
    if isinstance(default, ast.Call) and (dotted(default.func) or "").rpartition(".")[2] in ("Option", "Argument"):
        named = next((one.value for one in default.keywords if one.arg == "default"), None)
        return named or (default.args[0] if default.args else default)
    return default


def one_of(sides: list[Result], test: Value | Missing | None, node: ast.AST) -> Result:
    """Return the result that all branches agree on; else Missing, with the possible values."""
    charge(sum(one.size for one in sides if isinstance(one, Value)))
    values = [plain(one) for one in sides]
    known = [one for one in values if isinstance(one, Value)]
    first = known[0].value if known else None
    if (
        known
        and len(known) == len(sides)
        and all(type(one.value) is type(first) and one.value == first for one in known)
    ):
        return known[0]
    calls = [one for one in sides if isinstance(one, Called)]
    if len(sides) > 1 and all(isinstance(one, Entries) for one in sides):
        return _entry_by_entry([one for one in sides if isinstance(one, Entries)], test, node)
    if calls and len(calls) == len(sides) and all(one.node is calls[0].node for one in calls):
        return calls[0]
    line = getattr(node, "lineno", 0)
    name = test.name if isinstance(test, Missing) else shown(node)
    why = test.why if isinstance(test, Missing) else "several values are possible"
    either = tuple(one.value for one in known)
    return Missing(name=name, line=line, why=why, either=either, sides=tuple(calls))


def _entry_by_entry(sides: list[Entries], test: Value | Missing | None, node: ast.AST) -> Entries:
    """Merge alternative mappings key by key, keeping what they agree on."""
    absent = Missing(name="", line=0, why="")
    items: dict[str, Result] = {}
    charge(sum(len(side.items) + len(side.unknown) for side in sides) * len(sides))
    for key in dict.fromkeys(key for side in sides for key in side.items):
        items[key] = one_of([side.items.get(key, absent) for side in sides], test, node)
    return Entries(items=items, unknown=tuple(one for side in sides for one in side.unknown))


def joined(left: Result, right: Result, combine: Callable[[Any, Any], Any]) -> Result | None:
    """Return two mappings or two lists as one, even with unknown parts; None for anything else."""
    if combine is operator.or_ and isinstance(left, Entries) and isinstance(right, Entries):
        charge(len(left.items) + len(right.items) + len(left.unknown) + len(right.unknown))
        return Entries(items={**left.items, **right.items}, unknown=(*left.unknown, *right.unknown))
    if combine is operator.add and isinstance(left, Items) and isinstance(right, Items):
        charge(len(left.items) + len(right.items))
        return Items(items=(*left.items, *right.items)[:MOST_ITEMS])
    return None


def named_as(result: Result, name: str) -> Result:
    """Return a missing result under the name that the user knows; other results unchanged."""
    return replace(result, name=name) if isinstance(result, Missing) else result


def parts_of(either: tuple[Any, ...], place: int) -> tuple[Any, ...]:
    """Return one position of every possible tuple; empty if one of them is too short."""
    charge(len(either))
    lists = [one for one in either if isinstance(one, list | tuple) and place < len(one)]
    return tuple(one[place] for one in lists) if len(lists) == len(either) else ()


def noted(result: Result, test: Result | None = None, note: str = "", notes: tuple[str, ...] = ()) -> Result:
    """Return a result with the assumptions behind it."""
    notes = (*(test.notes if isinstance(test, Value) else ()), *([note] if note else []), *notes)
    if not notes or not isinstance(result, Value | Called):
        return result
    return replace(result, notes=merged(result.notes, notes))


def shown(node: ast.AST) -> str:
    """Return an expression as written, cut for messages; computed once."""
    text: str | None = getattr(node, "_shown", None)
    if text is None:
        text = _shown(node)
        node._shown = text  # type: ignore[attr-defined]
    return text


def _shown(node: ast.AST) -> str:
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
        return node.__class__.__name__
    left = [_SHOWN_NODES]
    cut = _cut(node, left)
    work(_NODE_UNITS * (_SHOWN_NODES - left[0]))
    try:
        text = ast.unparse(cut)
    except (RecursionError, ValueError, AttributeError):
        return "an expression"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}…"


def _cut(node: Any, left: list[int]) -> Any:
    """Return a copy of at most as many nodes as its first characters can show."""
    if not isinstance(node, ast.AST) or not node._fields:
        return node
    left[0] -= 1
    if left[0] < 0 and isinstance(node, ast.expr):
        return ast.Name(id="…", ctx=ast.Load())
    made = copy(node)
    for name, held in ast.iter_fields(node):
        if isinstance(held, list):
            setattr(made, name, [_cut(one, left) for one in held[:_SHOWN]])
        elif isinstance(held, str | bytes):
            setattr(made, name, held[: 2 * _SHOWN])
        else:
            setattr(made, name, _cut(held, left))
    return made
