"""Rows of a CSV file with only the cells they have, so that a wide header costs its length only once."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from vramwise.budget import Budget
from vramwise.errors import VramwiseError

# The memory of one cell: a text of a few characters, its entry in the row and in the dict.
_CELL_BYTES = 128


def csv_rows(path: Path, budget: Budget) -> Iterator[dict[Any, Any]]:
    """Yield each row as a dict of its own cells; cells beyond the header are under None, as in csv.DictReader.

    Raises VramwiseError if the file is not CSV.
    """
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
    """Yield lines until the budget is spent. They are charged before they are split, as a line may be all commas."""
    while line := text.readline(max(1, budget.size_bytes) + 1):
        size = len(line) if line.isascii() else len(line.encode("utf-8", "surrogatepass"))
        if not budget.take(size_bytes=size, lines=1, values_bytes=_CELL_BYTES * (line.count(",") + 1)):
            return
        yield line
