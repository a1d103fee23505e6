"""The package's own source, parsed once for all tests of a file that look at it."""

import ast
from functools import cache
from pathlib import Path

import pytest

import vramwise

SOURCE = Path(vramwise.__file__).parent


@cache
def modules() -> tuple[Path, ...]:
    return tuple(sorted(SOURCE.rglob("*.py")))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a module's syntax."""
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@pytest.fixture(autouse=True, scope="module")
def trees_for_one_file():
    """Import this fixture where the trees are used: they take 125 MB, which the other tests do not need."""
    yield
    nodes.cache_clear()
