"""Rows of local data files: JSON lines, JSON, CSV, and Parquet where pyarrow is installed. Runs nothing it reads."""

from __future__ import annotations

import csv
import io
import json
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

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
# What is read of all files together: enough for lengths, and a second or two.
MOST_BYTES = 64 * 2**20
MOST_ROWS = 200_000
_MOST_FILES = 1000


class Budget:
    """What may still be read; `cut` says that something was left."""

    def __init__(self, size_bytes: int = MOST_BYTES, rows: int = MOST_ROWS) -> None:
        self.size_bytes, self.rows, self.cut = size_bytes, rows, False

    @property
    def spent(self) -> bool:
        """Whether nothing more may be read."""
        return self.size_bytes <= 0 or self.rows <= 0


def data_files(path: Path) -> list[Path]:
    """The data files that a path leads to: itself, or those of a folder, two levels deep."""
    if path.is_dir():
        found = sorted(file for pattern in ("*", "*/*") for file in path.glob(pattern) if file.suffix.lower() in KINDS)
        if not found:
            raise VramwiseError(f"{path} holds no data: {_listed()} files are read")
        return found[:_MOST_FILES]
    if not path.exists():
        raise VramwiseError(f"{path} does not exist: name a data file ({_listed()}) or a folder of them")
    return [path]


def _listed() -> str:
    return ", ".join(suffix.removeprefix(".") for suffix in KINDS)


def read_rows(path: Path, budget: Budget, kind: str | None = None) -> Iterator[Row]:
    """Rows of one file, until the budget is spent. A VramwiseError names the file and what is wrong with it."""
    kind = kind if kind in ("json", "csv", "parquet") else KINDS.get(path.suffix.lower())
    if kind is None:
        raise VramwiseError(f"{path} is not read: its name must end in {_listed()}")
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise VramwiseError(f"{path} is no regular file: name a data file or a folder of them")
        rows = {"json": _json, "csv": _csv, "parquet": _parquet}[kind](path, budget)
        for row in rows:
            if budget.spent:
                budget.cut = True
                return
            budget.rows -= 1
            yield row
    except OSError as error:
        raise VramwiseError(f"{path} cannot be read: {error.strerror or error}") from error


def _json(path: Path, budget: Budget) -> Iterator[Row]:
    """One object a line, or one list of objects."""
    with path.open("rb") as file:
        head = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
        file.seek(0)
        if head.startswith(b"["):
            yield from _whole(file.read(budget.size_bytes + 1), path, budget)
            return
        number = 0
        while line := file.readline(max(1, budget.size_bytes) + 1):
            number += 1
            budget.size_bytes -= len(line)
            if budget.size_bytes < 0:
                budget.cut = True
                return
            if line.strip():
                yield _object(_parsed(line, f"{path}:{number}"), f"{path}:{number}")


def _whole(data: bytes, path: Path, budget: Budget) -> Iterator[Row]:
    if len(data) > budget.size_bytes:
        raise VramwiseError(f"{path} is one list of more than {mib(MOST_BYTES)}: write one row a line (jsonl)")
    budget.size_bytes -= len(data)
    for number, row in enumerate(_parsed(data, str(path)), 1):
        yield _object(row, f"{path}: row {number}")


def _parsed(data: bytes, where: str) -> Any:
    try:
        return json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise VramwiseError(f"{where}: not JSON: every line must be one row, or the file one list of rows") from error


def _object(row: Any, where: str) -> Row:
    if not isinstance(row, dict):
        raise VramwiseError(f"{where}: a row must be a JSON object")
    return row


def _csv(path: Path, budget: Budget) -> Iterator[Row]:
    with path.open("rb") as file:
        data = file.read(budget.size_bytes + 1)
    if len(data) > budget.size_bytes:
        budget.cut = True
        data = data[: data.rfind(b"\n", 0, budget.size_bytes) + 1]
    budget.size_bytes -= len(data)
    try:
        yield from csv.DictReader(io.StringIO(data.decode("utf-8-sig", "replace"), newline=""))
    except csv.Error as error:
        raise VramwiseError(f"{path} is not CSV: {error}") from error


def _parquet(path: Path, budget: Budget) -> Iterator[Row]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise VramwiseError(
            f"{path} cannot be read without pyarrow: pip install pyarrow, or write the lengths to a file for --lengths"
        ) from error
    try:
        for batch in parquet.ParquetFile(path).iter_batches(batch_size=256):
            budget.size_bytes -= batch.nbytes
            yield from batch.to_pylist()
    except (OSError, ValueError, RuntimeError, NotImplementedError, MemoryError) as error:  # pyarrow's errors are these
        raise VramwiseError(f"{path} is not read as Parquet: {str(error)[:200]}") from error
