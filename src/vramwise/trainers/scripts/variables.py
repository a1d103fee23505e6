"""The allocator's variables that a script sets itself: `os.environ["PYTORCH_ALLOC_CONF"] = "…"` at its beginning."""

from __future__ import annotations

import ast

from vramwise.allocator.variables import VARIABLES
from vramwise.documents.python.scopes import dotted

_ENVIRONMENTS = ("os.environ", "environ")


def own_variables(tree: ast.Module) -> dict[str, str]:
    """Those that statements of the module itself set to a plain text, whatever was set before."""
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for target in node.targets:
                name = _named(target)
                if name in VARIABLES:
                    found[name] = node.value.value
    return found


def _named(target: ast.expr) -> str:
    if not isinstance(target, ast.Subscript) or dotted(target.value) not in _ENVIRONMENTS:
        return ""
    key = target.slice
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""
