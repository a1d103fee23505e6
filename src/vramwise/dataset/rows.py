"""Rows of local data files: JSON lines, JSON, CSV, and Parquet if pyarrow is installed. Runs nothing it reads."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vramwise.budget import Budget, json_memory_bytes, limits, parse_json
from vramwise.budget.json_values import OverBudget
from vramwise.dataset.csv_rows import csv_rows
from vramwise.dataset.parquet_rows import parquet_rows
from vramwise.errors import VramwiseError
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
        for row in {"json": _json, "csv": csv_rows, "parquet": parquet_rows}[kind](path, budget):
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
            f"{path} is a single list larger than {mib(limits.DATA_BYTES)}: save one row per line (jsonl)"
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
