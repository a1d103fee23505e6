"""Rows of a CSV file: of each the cells that it has, so that a header of any width costs what it is long, once."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from vramwise.budget import Budget
from vramwise.errors import VramwiseError

# What one cell costs as an object: a text of a few characters, its place in the row and in the dict.
_CELL_BYTES = 128


def csv_rows(path: Path, budget: Budget) -> Iterator[dict[Any, Any]]:
    """Each row as a dict of its own cells; what goes beyond the header stands under None, as in csv.DictReader."""
    with path.open("rb") as file:
        text = io.TextIOWrapper(file, "utf-8-sig", "replace", newline="")
        rows = csv.reader(_lines(text, budget))
        try:
            names = next(rows, [])
            for cells in rows:
                if cells:
                    row: dict[Any, Any] = dict(zip(names, cells, strict=False))
                    if len(cells) > len(names):
                        row[None] = cells[len(names) :]
                    yield row
        except csv.Error as error:
            raise VramwiseError(f"{path} is not CSV: {error}") from error


def _lines(text: TextIO, budget: Budget) -> Iterator[str]:
    """The lines until the budget is spent, charged before they are split: a line may be one comma after another."""
    while line := text.readline(max(1, budget.size_bytes) + 1):
        size = len(line) if line.isascii() else len(line.encode("utf-8", "surrogatepass"))
        if not budget.take(size_bytes=size, lines=1, values_bytes=_CELL_BYTES * (line.count(",") + 1)):
            return
        yield line
