"""Parses modules that a script imports from beside it: their functions and classes are followed, nothing is run.

Nodes of such a module have no end, so that nothing is edited or shown as if it were in the script, and the line of the
import that leads to them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from vramwise.documents.python.source import read_source
from vramwise.errors import ConfigError

# Far more than training scripts have; a large project is not read as a whole.
_MOST_MODULES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A parsed module, and the package that its relative imports start from."""

    tree: ast.Module
    package: str


@dataclass(slots=True)
class Modules:
    """Returns modules beside a script by name. `load`: returns the source, and whether it is a package's own."""

    load: Callable[[str], tuple[bytes, bool] | None]
    read: int = 0

    def __call__(self, name: str, line: int) -> Module | None:
        """Return a module by its full name; None for a library's, and for one that cannot be parsed."""
        found = self.load(name) if self.read < _MOST_MODULES else None
        if found is None:
            return None
        self.read += 1
        data, is_package = found
        try:
            tree = read_source(data).tree
        except ConfigError:
            return None
        for node in ast.walk(tree):
            if isinstance(node, ast.stmt | ast.expr | ast.keyword):
                node.lineno, node.end_lineno = line, None
        tree.body = [one for one in tree.body if not _only_as_script(one)]
        return Module(tree=tree, package=name if is_package else name.rpartition(".")[0])


def _only_as_script(node: ast.stmt) -> bool:
    """Return whether a statement is `if __name__ == "__main__":`."""
    test = node.test if isinstance(node, ast.If) else None
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def full_name(node: ast.ImportFrom, package: str) -> str:
    """Return the full name of the module that `from … import …` names inside a package."""
    parts = package.split(".") if package and node.level else []
    kept = parts[: max(0, len(parts) - node.level + 1)]
    return ".".join([*kept, *filter(None, [node.module])])
