"""Print the lines and files of each room of src/vramwise, with code, docstrings, comments and blank lines apart.

    python scripts/room_sizes.py            # the table
    python scripts/room_sizes.py --write    # sets each room's number in tests/test_size.py: its lines now + 2 %

Only Python counts. A room is a folder or a module directly in `vramwise`. A blank line of a docstring is docstring.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "vramwise"
TEST = ROOT / "tests" / "test_size.py"
_TABLE = re.compile(r"^ROOMS = \{\n.*?^\}\n", re.MULTILINE | re.DOTALL)


@dataclass(slots=True)
class Size:
    """How many files and lines there are of each kind; `code` has the imports in it."""

    files: int = 0
    code: int = 0
    docstrings: int = 0
    comments: int = 0
    blank: int = 0

    @property
    def lines(self) -> int:
        """All lines."""
        return self.code + self.docstrings + self.comments + self.blank

    def add(self, other: Size) -> None:
        """Add the counts of another."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def size_of(text: str) -> Size:
    """Return the counts of one file."""
    lines = text.splitlines()
    docstrings = set(_docstring_lines(ast.parse(text)))
    comments = {
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT and token.line.lstrip().startswith("#")
    }
    blank = {number for number, line in enumerate(lines, 1) if not line.strip()} - docstrings
    return Size(1, len(lines) - len(docstrings | comments | blank), len(docstrings), len(comments), len(blank))


def _docstring_lines(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body:
                case [ast.Expr(value=ast.Constant(value=str())) as first, *_]:
                    yield from range(first.lineno, (first.end_lineno or first.lineno) + 1)


def rooms(source: Path = SOURCE) -> dict[str, Size]:
    """Return the size of each room, by name."""
    sizes: dict[str, Size] = {}
    for path in sorted(source.rglob("*.py")):
        room = path.relative_to(source).parts[0].removesuffix(".py")
        sizes.setdefault(room, Size()).add(size_of(path.read_text(encoding="utf-8")))
    return sizes


def table(sizes: dict[str, Size]) -> str:
    """Return the table that is printed, largest rooms first, with the sum at the end."""
    total = Size()
    for size in sizes.values():
        total.add(size)
    columns = ("lines", "files", "code", "docstrings", "comments", "blank")
    rows = [("room".ljust(16), *(column.rjust(10) for column in columns))]
    by_size = sorted(sizes.items(), key=lambda item: -item[1].lines)
    for name, size in (*by_size, ("all", total)):
        rows.append((name.ljust(16), *(f"{getattr(size, column):,}".rjust(10) for column in columns)))
    return "\n".join(" ".join(row) for row in rows)


def write(sizes: dict[str, Size], test: Path = TEST) -> None:
    """Set the numbers in the test."""
    lines = [f'    "{name}": {ceil(size.lines * 1.02):_},' for name, size in sorted(sizes.items())]
    text = test.read_text(encoding="utf-8")
    test.write_text(_TABLE.sub("ROOMS = {\n" + "\n".join(lines) + "\n}\n", text), encoding="utf-8")


if __name__ == "__main__":
    print(table(rooms()))
    if "--write" in sys.argv:
        write(rooms())
