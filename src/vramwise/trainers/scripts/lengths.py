"""Finds row lengths if a script tokenizes itself: the length that it truncates, cuts or groups rows to."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from vramwise.documents.python.evaluate import Evaluator
from vramwise.documents.python.flags import same
from vramwise.documents.python.results import Missing, Value, plain
from vramwise.documents.python.scopes import Scope, Site, dotted
from vramwise.limits.meter import work

# Names of rows that a script cuts: `input_ids[:MAX_LENGTH]`.
_ROWS = ("input_ids", "labels")
# Shorter parts are not rows of a language model, but for example answers to choose from.
_SHORTEST_BLOCK = 32


def row_lengths(evaluator: Evaluator) -> list[Value | Missing]:
    """Return every different row length in the source, in order.

    Recognises `tokenizer(…, truncation=True, max_length=N)`, `input_ids[:N]`, and `ids[i : i + N]` of joined rows. If
    none is known, returns the first missing one.
    """
    found: dict[object, Value] = {}
    missing: list[Missing] = []
    told = [(_named(call)["max_length"], site, 2) for call, site in _truncated(evaluator)]
    told += _cut(evaluator.found.module, evaluator)
    for expression, site, least in told:
        held = plain(evaluator.evaluate(expression, site))
        if isinstance(held, Missing):
            missing.append(held)
        elif isinstance(held.value, int) and not isinstance(held.value, bool) and held.value >= least:
            found.setdefault(held.value, held)
    return [*found.values()] if found else [*missing[:1]]


def pads_rows(evaluator: Evaluator) -> bool:
    """Return whether every tokenizer call that limits rows also fills them up to that limit."""
    filled = [_is_filled(_named(call)) for call, _ in _truncated(evaluator)]
    return all(filled) and bool(filled)


def _named(call: ast.Call) -> dict[str | None, ast.expr]:
    return {one.arg: one.value for one in call.keywords}


def _is_filled(named: dict[str | None, ast.expr]) -> bool:
    padding = named.get("padding")
    return isinstance(padding, ast.Constant) and padding.value == "max_length"


def _truncated(evaluator: Evaluator) -> Iterator[tuple[ast.Call, Site]]:
    """Yield the tokenizer calls that limit the rows that are trained on."""
    generating = {id(site.scope) for call, site in evaluator.found.calls if _method(call) == "generate"}
    for call, site in evaluator.found.calls:
        named = _named(call)
        if "max_length" not in named or not ("truncation" in named or _is_filled(named)):
            continue
        if evaluator.is_left_out(site):
            continue
        # Text that is tokenized for generation is not trained on.
        if id(site.scope) in generating and (site.scope.parent is not None or "return_tensors" in named):
            continue
        yield call, site


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _cut(scope: Scope, evaluator: Evaluator) -> Iterator[tuple[ast.expr, Site, int]]:
    """Yield the upper ends of slices in the functions of a scope, and the least length that counts as a row."""
    for inner in (*scope.functions.values(), *scope.classes.values()):
        if isinstance(inner.node, ast.FunctionDef | ast.AsyncFunctionDef):
            if inner.defined is not None and evaluator.is_left_out(inner.defined):
                continue
            site = Site(scope=inner, order=2**31)
            for node in ast.walk(inner.node):
                work(5)  # a function inside others is walked with each of them
                if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
                    end = _end(node.value, node.slice)
                    least = 2 if node.slice.lower is None else _SHORTEST_BLOCK
                    yield from [(end, site, least)] if end is not None else []
        yield from _cut(inner, evaluator)


def _end(rows: ast.expr, part: ast.Slice) -> ast.expr | None:
    """Return the length of a slice of rows if it begins at their start or is one of equal parts; else None."""
    if part.upper is None or part.step is not None:
        return None
    if part.lower is None:
        name = rows.slice.value if isinstance(rows, ast.Subscript) and isinstance(rows.slice, ast.Constant) else ""
        return part.upper if (name or (dotted(rows) or "").rpartition(".")[2]) in _ROWS else None
    upper = part.upper
    if isinstance(upper, ast.BinOp) and isinstance(upper.op, ast.Add) and same(upper.left, part.lower):
        return upper.right
    return None
