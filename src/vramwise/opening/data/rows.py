"""Rows of local data files: JSON lines, JSON, CSV, and Parquet if pyarrow is installed. Runs nothing it reads.

Rows of a CSV file have only the cells that are there, so that a wide header costs its length only once. A Parquet file
is decoded by pyarrow in its own process: the sizes in a footer cannot be trusted.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from vramwise.errors import VramwiseError
from vramwise.limits import Budget, ceilings, json_memory_bytes, parse_json
from vramwise.limits.child import child_lines
from vramwise.limits.json_values import OverBudget
from vramwise.units import mib

Row = Mapping[str, Any]
KINDS = {
    ".jsonl": "json",
    ".json": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".parquet": "parquet",
}
_MOST_FILES = 1000


def data_files(path: Path) -> list[Path]:
    """Return the data files at a path: the file itself, or those in a folder, two levels deep.

    Raises VramwiseError if there are none.
    """
    if path.is_dir():
        found = sorted(file for pattern in ("*", "*/*") for file in path.glob(pattern) if file.suffix.lower() in KINDS)
        if not found:
            raise VramwiseError(f"no data in {path}: expected {_listed()} files")
        return found[:_MOST_FILES]
    if not path.exists():
        raise VramwiseError(f"{path} does not exist: name a data file ({_listed()}) or a folder of them")
    return [path]


def _listed() -> str:
    return ", ".join(suffix.removeprefix(".") for suffix in KINDS)


def read_rows(path: Path, budget: Budget, kind: str | None = None) -> Iterator[Row]:
    """Yield rows of one file until the budget is spent.

    Raises VramwiseError with the file and what is wrong with it.
    """
    kind = kind if kind in ("json", "csv", "parquet") else KINDS.get(path.suffix.lower())
    if kind is None:
        raise VramwiseError(f"cannot read {path}: its name must end in {_listed()}")
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise VramwiseError(f"{path} is not a regular file: name a data file or a folder of them")
        for row in {"json": _json, "csv": _csv_rows, "parquet": parquet_rows}[kind](path, budget):
            if not budget.take(rows=1):
                return
            yield row
    except OSError as error:
        raise VramwiseError(f"{path} cannot be read: {error.strerror or error}") from error


def _json(path: Path, budget: Budget) -> Iterator[Row]:
    """Yield the rows of a file with one object per line, or one list of objects."""
    with path.open("rb") as file:
        head = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
        file.seek(0)
        if head.startswith(b"["):
            yield from _whole(file.read(budget.size_bytes + 1), path, budget)
            return
        number = 0
        while line := file.readline(max(1, budget.size_bytes) + 1):
            number += 1
            if not budget.take(size_bytes=len(line), lines=1):
                return
            if not line.isspace():
                yield from _line(line, f"{path}:{number}", budget)


def _line(line: bytes, where: str, budget: Budget) -> Iterator[Row]:
    needed = json_memory_bytes(line)
    if budget.take(values_bytes=needed):
        try:
            yield _object(_parsed(line, where, needed), where)
        except OverBudget:
            budget.left_out += 1


def _whole(data: bytes, path: Path, budget: Budget) -> Iterator[Row]:
    if len(data) > budget.size_bytes:
        raise VramwiseError(
            f"{path} is a single list larger than {mib(ceilings.DATA_BYTES)}: save one row per line (jsonl)"
        )
    needed = json_memory_bytes(data)
    budget.take(size_bytes=len(data), values_bytes=needed)
    try:
        rows = _parsed(data, str(path), needed)
    except OverBudget as error:
        raise VramwiseError(f"{path} is a single list, and {error}: save one row per line (jsonl)") from error
    for number, row in enumerate(rows, 1):
        yield _object(row, f"{path}: row {number}")


def _parsed(data: bytes, where: str, needed_bytes: int) -> Any:
    try:
        return parse_json(data.removeprefix(b"\xef\xbb\xbf"), needed_bytes)
    except ValueError as error:
        raise VramwiseError(f"{where}: not JSON: expected one row per line, or a single list of rows") from error


def _object(row: Any, where: str) -> Row:
    if not isinstance(row, dict):
        raise VramwiseError(f"{where}: a row must be a JSON object")
    return row


# The memory of one cell: a text of a few characters, its entry in the row and in the dict.
_CELL_BYTES = 128


def _csv_rows(path: Path, budget: Budget) -> Iterator[dict[Any, Any]]:
    """Yield each row as a dict of its own cells; cells beyond the header are under None, as in csv.DictReader.

    Raises VramwiseError if the file is not CSV.
    """
    with path.open("rb") as file:
        text = io.TextIOWrapper(file, "utf-8-sig", "replace", newline="")
        rows = csv.reader(_csv_lines(text, budget))
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


def _csv_lines(text: TextIO, budget: Budget) -> Iterator[str]:
    """Yield lines until the budget is spent. They are charged before they are split, as a line may be all commas."""
    while line := text.readline(max(1, budget.size_bytes) + 1):
        size = len(line) if line.isascii() else len(line.encode("utf-8", "surrogatepass"))
        if not budget.take(size_bytes=size, lines=1, values_bytes=_CELL_BYTES * (line.count(",") + 1)):
            return
        yield line


_INSTEAD = "save the rows as jsonl, or use --lengths with a file of lengths"


class NoPyarrow(VramwiseError):  # noqa: N818 (it reads as what is the matter)
    """The package is not installed; not cached, as it may be installed later."""


def parquet_rows(path: Path, budget: Budget) -> Iterator[dict[str, Any]]:
    """Yield rows until the budget or the decoding process's limits are spent.

    Raises VramwiseError if nothing can be decoded, NoPyarrow without pyarrow.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise NoPyarrow(f"reading {path} needs pyarrow: pip install pyarrow, or use --lengths with a file of lengths")
    bounds = (budget.size_bytes, budget.rows, budget.values_bytes)
    found, ended = 0, False
    for line in child_lines("vramwise.opening.data.parquet_child", str(path.absolute()), *map(str, bounds)):
        needed = json_memory_bytes(line)
        if line.startswith(b"["):
            _end(path, parse_json(line), budget)
            ended = True
        elif budget.take(values_bytes=needed):
            found += 1
            try:
                yield parse_json(line, needed)
            except (ValueError, OverBudget):
                budget.left_out += 1
    if not ended and not budget.cut:
        budget.cut = True
        if not found:
            raise VramwiseError(
                f"{path}: decoding its first rows takes more than {mib(ceilings.CHILD_MEMORY_BYTES)} of "
                f"memory or {ceilings.CHILD_CPU_SECONDS} s: {_INSTEAD}"
            )


def _end(path: Path, said: list[Any], budget: Budget) -> None:
    """Process the last line: how much was decoded, whether the data was cut, and the error, if any."""
    size_bytes, cut, error = said
    budget.take(size_bytes=size_bytes)
    budget.cut = budget.cut or cut
    if error:
        raise VramwiseError(f"cannot read {path} as Parquet: {error}")
