"""Print which room imports which, and every late import across rooms (one inside a function) with its line.

python scripts/import_graph.py           the graph, a line a room
python scripts/import_graph.py --late    late imports across rooms, each with its reason
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_LATE = re.compile(r"# late: (.+)", re.IGNORECASE)
SOURCE = Path(__file__).resolve().parent.parent / "src" / "vramwise"


class Import(NamedTuple):
    """One import of a module of ours; `late`: inside a function."""

    importer: Path
    line: int
    imported: str
    late: bool

    @property
    def rooms(self) -> tuple[str, str]:
        """Importing and imported room: the first part below the package."""
        return _room(self.importer.relative_to(SOURCE).parts[0]), _room(self.imported.split(".")[1])

    @property
    def reason(self) -> str:
        """Why it is late: the comment `late: …` on its line, or above the imports that it stands among; "" for none."""
        lines = self.importer.read_text(encoding="utf-8").splitlines()[: self.line]
        said = _LATE.search(lines[-1])
        while not said and lines and lines[-1].lstrip().startswith("from "):
            lines.pop()
            said = _LATE.search(lines[-1]) if lines else None
        return said[1] if said else ""

    @property
    def crosses(self) -> bool:
        """Whether it leaves its room."""
        return self.rooms[0] != self.rooms[1]


def _room(part: str) -> str:
    return part.removesuffix(".py")


def imports() -> Iterator[Import]:
    """Every import of ours in the tree; those for type checkers alone are left out."""
    for path in sorted(SOURCE.rglob("*.py")):
        yield from _below(path, ast.parse(path.read_text(encoding="utf-8")), late=False)


def _below(path: Path, node: ast.AST, late: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.ImportFrom) and (child.module or "").startswith("vramwise."):
            yield Import(path, child.lineno, child.module or "", late)
        yield from _below(path, child, late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))


def graph() -> dict[str, dict[str, int]]:
    """Room → imported room → number of imports, late ones included."""
    found: dict[str, dict[str, int]] = {}
    for one in imports():
        if one.crosses:
            importer, imported = one.rooms
            found.setdefault(importer, {}).setdefault(imported, 0)
            found[importer][imported] += 1
    return found


def late() -> list[Import]:
    """Late imports that cross rooms. Those of `api.py` are what it is for: each verb brings its own on first use."""
    return [one for one in imports() if one.late and one.crosses and one.importer != SOURCE / "api.py"]


def main() -> None:
    """Print what was asked for."""
    if "--late" in sys.argv[1:]:
        for one in late():
            print(f"{one.importer.relative_to(SOURCE.parent)}:{one.line}: {one.imported} ({one.reason or 'no reason'})")
        print(f"{len(late())} late imports across rooms")
        return
    for room, others in sorted(graph().items()):
        print(f"{room:<14}", ", ".join(f"{other} {count}" for other, count in sorted(others.items())))


if __name__ == "__main__":
    main()
