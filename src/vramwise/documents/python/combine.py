"""Combines results: branches, mappings, lists and notes; and limits what is computed."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from vramwise.documents.python.results import Called, Entries, Items, Missing, Result, Value, plain
from vramwise.documents.python.scopes import dotted

LONGEST_TEXT = 100_000
LARGEST_NUMBER = 2**128
MOST_ITEMS = 1000
# A format field with a huge width: `%100000000d`.
_WIDTH = re.compile(r"\d{4}")


def default_of(spec: ast.arguments, name: str) -> ast.expr | None:
    """Return the default of a parameter, or None."""
    ordered = [*spec.posonlyargs, *spec.args]
    for argument, default in zip(reversed(ordered), reversed(spec.defaults), strict=False):
        if argument.arg == name:
            return default
    for argument, held in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
        if argument.arg == name:
            return held
    return None


def inner_default(default: ast.expr) -> ast.expr:
    """Return the default inside `typer.Option(8)`; other defaults unchanged."""
    if isinstance(default, ast.Call) and (dotted(default.func) or "").rpartition(".")[2] in ("Option", "Argument"):
        named = next((one.value for one in default.keywords if one.arg == "default"), None)
        return named or (default.args[0] if default.args else default)
    return default


def one_of(sides: list[Result], test: Value | Missing | None, node: ast.AST) -> Result:
    """Return the result that all branches agree on; else Missing, with the possible values."""
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
    for key in dict.fromkeys(key for side in sides for key in side.items):
        items[key] = one_of([side.items.get(key, absent) for side in sides], test, node)
    return Entries(items=items, unknown=tuple(one for side in sides for one in side.unknown))


def joined(left: Result, right: Result, combine: Callable[[Any, Any], Any]) -> Result | None:
    """Return two mappings or two lists as one, even with unknown parts; None for anything else."""
    if combine is operator.or_ and isinstance(left, Entries) and isinstance(right, Entries):
        return Entries(items={**left.items, **right.items}, unknown=(*left.unknown, *right.unknown))
    if combine is operator.add and isinstance(left, Items) and isinstance(right, Items):
        return Items(items=(*left.items, *right.items)[:MOST_ITEMS])
    return None


def named_as(result: Result, name: str) -> Result:
    """Return a missing result under the name that the user knows; other results unchanged."""
    return replace(result, name=name) if isinstance(result, Missing) else result


def parts_of(either: tuple[Any, ...], place: int) -> tuple[Any, ...]:
    """Return one position of every possible tuple; empty if one of them is too short."""
    lists = [one for one in either if isinstance(one, list | tuple) and place < len(one)]
    return tuple(one[place] for one in lists) if len(lists) == len(either) else ()


def noted(result: Result, test: Result | None = None, note: str = "", notes: tuple[str, ...] = ()) -> Result:
    """Return a result with the assumptions behind it."""
    notes = (*(test.notes if isinstance(test, Value) else ()), *([note] if note else []), *notes)
    if not notes or not isinstance(result, Value | Called):
        return result
    return replace(result, notes=tuple(dict.fromkeys((*result.notes, *notes))))


def too_large(combine: Callable[[Any, Any], Any], left: Any, right: Any) -> bool:
    """Return whether an operation would produce more than is worth computing."""
    if combine is operator.pow:
        return not (abs(right) <= 64 and abs(left) <= 1_000_000 if _numbers(left, right) else False)
    if combine is operator.mul and not _numbers(left, right):
        sized = [size(one) for one in (left, right) if isinstance(one, str | list | tuple)]
        counts = [one for one in (left, right) if isinstance(one, int)]
        return bool(sized and counts) and sized[0] * abs(counts[0]) > LONGEST_TEXT
    if combine is operator.mod and isinstance(left, str):
        return _WIDTH.search(left) is not None
    if combine is operator.add and not _numbers(left, right):
        return size(left) + size(right) > LONGEST_TEXT
    return any(isinstance(one, int) and abs(one) > LARGEST_NUMBER for one in (left, right))


def size(value: Any) -> int:
    """Return the number of characters and items in a value, counted up to a limit."""
    waiting, found = [value], 0
    while waiting and found <= LONGEST_TEXT:
        one = waiting.pop()
        if isinstance(one, str | bytes):
            found += len(one)
        elif isinstance(one, list | tuple | set | frozenset):
            found += len(one)
            waiting.extend(one)
        elif isinstance(one, Mapping):
            found += len(one)
            waiting.extend(one.values())
        else:
            found += 1
    return found


def _numbers(*values: Any) -> bool:
    return all(isinstance(one, int | float) for one in values)


def shown(node: ast.AST) -> str:
    """Return an expression as written, shortened for messages."""
    try:
        text = (
            ast.unparse(node)
            if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module)
            else node.__class__.__name__
        )
    except (RecursionError, ValueError, AttributeError):
        return "an expression"
    return text if len(text) <= 60 else f"{text[:57]}…"
