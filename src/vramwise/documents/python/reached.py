"""Which functions of a script can run: those that its statements name, and what these name in turn."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from vramwise.documents.python.scopes import Index, Scope, dotted

# Hydra's decorator starts nothing by itself: the function is called by its name.
_CALLED_BY_NAME = "hydra.main"


def reached(found: Index) -> set[int]:
    """The scopes, by id, that statements of the module lead to; all of them where the module itself calls nothing."""
    scopes = list(_inner(found.module))
    named = _names(found.module.node)
    held: set[int] = {id(found.module)}
    if not any(
        isinstance(one.node, ast.FunctionDef | ast.AsyncFunctionDef) and one.node.name in named for one in scopes
    ):
        return held | {id(one) for one in scopes}
    while True:
        more = [one for one in scopes if id(one) not in held and _runs(one, named, held)]
        if not more:
            return held
        for one in more:
            held.add(id(one))
            named |= _names(one.node)


def _runs(scope: Scope, named: set[str], held: set[int]) -> bool:
    """Whether a function is named somewhere that runs, or a class; a method, with its class."""
    node, parent = scope.node, scope.parent
    assert not isinstance(node, ast.Module)
    if isinstance(node, ast.ClassDef):
        return node.name in named
    if parent is not None and isinstance(parent.node, ast.ClassDef) and id(parent) not in held:
        return False
    special = node.name.startswith("__")
    decorators = [dotted(one.func if isinstance(one, ast.Call) else one) for one in node.decorator_list]
    return special or node.name in named or any(one != _CALLED_BY_NAME for one in decorators)


def _inner(scope: Scope) -> Iterator[Scope]:
    for one in (*scope.functions.values(), *scope.classes.values()):
        yield one
        yield from _inner(one)


def _names(node: ast.AST) -> set[str]:
    """Names and attributes in a function's or module's own statements; of a class, in its own and its bases."""
    found: set[str] = set()
    left = list(ast.iter_child_nodes(node))
    while left:
        one = left.pop()
        if isinstance(one, ast.Name):
            found.add(one.id)
        elif isinstance(one, ast.Attribute):
            found.add(one.attr)
        if not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            left += ast.iter_child_nodes(one)
    return found
