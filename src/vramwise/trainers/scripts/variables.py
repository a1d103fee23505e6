"""Finds allocator variables that a script sets itself.

`os.environ["PYTORCH_ALLOC_CONF"] = "…"` at its beginning, or `os.environ.setdefault("PYTORCH_ALLOC_CONF", "…")`.
"""

from __future__ import annotations

import ast

from vramwise.allocator.variables import VARIABLES
from vramwise.documents.python.scopes import dotted

_ENVIRONMENTS = ("os.environ", "environ")


def own_variables(tree: ast.Module) -> dict[str, str]:
    """Return the variables that statements at module level set to a plain text, whatever was set before."""
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for target in node.targets:
                name = _named(target)
                if name in VARIABLES:
                    found[name] = node.value.value
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            name, text = _defaulted(node.value)
            if name in VARIABLES:
                found.setdefault(name, text)
    return found


def _defaulted(call: ast.Call) -> tuple[str, str]:
    """Return name and text of `os.environ.setdefault("X", "…")`; empty for other calls."""
    texts = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    known = dotted(call.func) in [f"{one}.setdefault" for one in _ENVIRONMENTS] and len(texts) == 2
    return (texts[0], texts[1]) if known else ("", "")


def _named(target: ast.expr) -> str:
    if not isinstance(target, ast.Subscript) or dotted(target.value) not in _ENVIRONMENTS:
        return ""
    key = target.slice
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""
