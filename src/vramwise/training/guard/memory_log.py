"""`memory.jsonl`: what the guard saw, one JSON object per line, appended and never rewritten.

Each line is one write, so a killed process leaves at most one incomplete line at the end; the next writer starts a new
line, and the reader skips what it cannot read. Kinds of lines: `start` (an attempt), `sample`, `warning`, `end`, and
`decision` (what the supervisor did between attempts). Each has required fields: if they are missing or of another type,
the line does not count.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from vramwise.errors import VramwiseError
from vramwise.limits import Budget, ceilings, json_memory_bytes, parse_json
from vramwise.training.guard.samples import PREDICTED_PHASES

LOG_FILE = "memory.jsonl"
_MOST = 2**63  # for bytes and steps: larger values are not measurements
_SIZES = ("allocated_bytes", "reserved_bytes", "peak_allocated_bytes", "peak_reserved_bytes", "retries")
_PEAKS = ("peak_allocated_bytes", "peak_reserved_bytes")


def log_path(output_dir: str | Path, rank: int = 0) -> Path:
    """Return where a rank writes: rank 0 to `memory.jsonl`, the others to `memory.rank3.jsonl`."""
    return Path(output_dir) / (LOG_FILE if rank == 0 else f"memory.rank{rank}.jsonl")


class MemoryLog:
    """An open log; lines have reached the kernel when `write` returns."""

    def __init__(self, path: str | Path) -> None:
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        if _ends_in_a_torn_line(self._file):
            os.write(self._file, b"\n")

    def write(self, kind: str, record: Mapping[str, Any]) -> None:
        """Append one line."""
        line = json.dumps({"kind": kind, **record}, separators=(",", ":"))
        os.write(self._file, line.encode() + b"\n")

    def close(self) -> None:
        """Close the log; closing it again does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> MemoryLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _ends_in_a_torn_line(file: int) -> bool:
    size = os.fstat(file).st_size
    if size == 0:
        return False
    os.lseek(file, size - 1, os.SEEK_SET)
    return os.read(file, 1) != b"\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogContents:
    """The readable lines in order, and the number of unreadable ones."""

    records: Sequence[Mapping[str, Any]]
    torn: int
    cut: bool = False  # only the beginning of the log was read

    def of_kind(self, kind: str) -> list[Mapping[str, Any]]:
        """Return the lines of one kind."""
        return [record for record in self.records if record["kind"] == kind]


def read_log(path: str | Path) -> LogContents:
    """Read a log, even if its writer was killed or is still writing; raises VramwiseError if it cannot be opened."""
    try:
        with Path(path).open("rb") as file:
            # All records are kept: half of the memory is for them, half for what is computed from them.
            budget = Budget(rows=ceilings.DATA_LINES, values_bytes=ceilings.MEMORY_BYTES // 2)
            return replace(parse_log(_lines(file, budget)), cut=budget.cut)
    except OSError as error:
        raise VramwiseError(f"{path} cannot be read: {error.strerror}") from error


def _lines(file: BinaryIO, budget: Budget) -> Iterator[bytes]:
    while line := file.readline(ceilings.LOG_LINE_BYTES):
        if not budget.take(size_bytes=len(line), lines=1, values_bytes=json_memory_bytes(line)):
            return
        yield line


def parse_log(lines: Iterable[bytes]) -> LogContents:
    """Return the records of a log's lines."""
    records: list[Mapping[str, Any]] = []
    torn = 0
    for line in lines:
        try:
            record = parse_json(line)
        except (ValueError, VramwiseError):
            torn += bool(line.strip())
            continue
        if isinstance(record, dict) and isinstance(record.get("kind"), str):
            records.append(record)
        else:
            torn += 1
    return LogContents(records=records, torn=torn)


def usable(record: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the record as the report reads it, or None if it is unusable. Unknown kinds pass."""
    kind = record["kind"]
    if kind == "start":
        return _start(record)
    if kind == "sample":
        return record if _is_sample(record) else None
    if kind == "warning":
        said = isinstance(record.get("rule"), str) and isinstance(record.get("message"), str)
        return record if said and _is_number(record.get("step")) else None
    if kind == "decision":
        return record if isinstance(record.get("advice") or [], list) else None
    return record


def _start(record: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if not isinstance(record.get("device") or "", str):
        return None
    numbers = (record.get(name) for name in ("device_bytes", "max_steps", "step"))
    if not all(value is None or _is_number(value) for value in numbers):
        return None
    return {**record, "step": record.get("step") or 0, "predicted": _predicted(record.get("predicted"))}


def _predicted(written: Any) -> dict[str, Any] | None:
    """Return the prediction, or None if its peaks are missing; incomplete phases are left out."""
    if not _has_peaks(written):
        return None
    phases = written.get("phases")
    listed = phases if isinstance(phases, list) else []
    return {**written, "phases": [one for one in listed if _has_peaks(one) and isinstance(one.get("phase"), str)]}


def _has_peaks(written: Any) -> bool:
    return isinstance(written, dict) and all(_is_number(written.get(name)) for name in _PEAKS)


def _is_sample(record: Mapping[str, Any]) -> bool:
    phase = record.get("phase")
    known = isinstance(phase, str) and phase in PREDICTED_PHASES
    return known and all(_is_number(record.get(name)) for name in (*_SIZES, "step"))


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST
