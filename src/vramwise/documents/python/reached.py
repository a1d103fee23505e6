"""Finds the functions of a script that can run: those that its statements name, and those that these name in turn."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from vramwise.documents.python.scopes import Index, Scope, children, dotted

# Hydra's decorator does not run the function: it is called by its name.
_CALLED_BY_NAME = "hydra.main"
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def reached(found: Index) -> set[int]:
    """Return the ids of the scopes that the module's statements lead to; all scopes if the module calls nothing."""
    scopes = list(_inner(found.module))
    first = _names(found.module.node)
    if not any(isinstance(one.node, _FUNCTIONS) and one.node.name in first for one in scopes):
        return {id(found.module), *map(id, scopes)}
    return _Reach(scopes).of(found.module, first)


class _Reach:
    """Follows names from scope to scope, each once."""

    def __init__(self, scopes: list[Scope]) -> None:
        self.by_name: defaultdict[str, list[Scope]] = defaultdict(list)
        for one in scopes:
            self.by_name[_name(one)].append(one)
        self.named: set[str] = set()
        self.held: set[int] = set()
        self.waiting: list[Scope] = []

    def of(self, module: Scope, first: set[str]) -> set[int]:
        """Return the ids of all scopes that a module reaches, which names the first ones."""
        self._hold(module)
        while self.waiting:
            scope = self.waiting.pop()
            for inner in (*scope.functions.values(), *scope.classes.values()):
                if _name(inner) in self.named or _runs_unnamed(inner):
                    self._hold(inner)
            names = first if scope is module else _names(scope.node)
            for name in names - self.named:
                self.named.add(name)
                for one in self.by_name[name]:
                    if not _is_method(one) or id(one.parent) in self.held:
                        self._hold(one)
        return self.held

    def _hold(self, scope: Scope) -> None:
        if id(scope) not in self.held:
            self.held.add(id(scope))
            self.waiting.append(scope)


def _name(scope: Scope) -> str:
    return str(getattr(scope.node, "name", ""))


def _is_method(scope: Scope) -> bool:
    return scope.parent is not None and isinstance(scope.parent.node, ast.ClassDef)


def _runs_unnamed(scope: Scope) -> bool:
    """Return whether a function runs without being named: a special method, or one that a decorator registers."""
    node = scope.node
    if not isinstance(node, _FUNCTIONS):
        return False
    decorators = [dotted(one.func if isinstance(one, ast.Call) else one) for one in node.decorator_list]
    return node.name.startswith("__") or any(one != _CALLED_BY_NAME for one in decorators)


def _inner(scope: Scope) -> Iterator[Scope]:
    for one in (*scope.functions.values(), *scope.classes.values()):
        yield one
        yield from _inner(one)


def _names(node: ast.AST) -> set[str]:
    """Return the names and attributes in a scope's own statements, without those of inner scopes."""
    found: set[str] = set()
    left = children(node)
    while left:
        one = left.pop()
        if isinstance(one, ast.Name):
            found.add(one.id)
        elif isinstance(one, ast.Attribute):
            found.add(one.attr)
        if not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            left += children(one)
    return found
