"""The marker of a checkpoint, written last: its files (sizes and hashes), its run and its settings.

`seal` syncs every file to disk before the marker; `faults` checks whether the listed files are unchanged. Knows only
files: no torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.limits import ceilings, parse_json, read_file
from vramwise.whole_files import put_whole, sync_folder

MARKER = "vramwise-complete.json"
_FORMAT = 2  # format 1 listed no files
_CHUNK_BYTES = 1024**2
_READERS = 4  # hashing releases the GIL, so several files are read at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """The content of a marker. `files` is None if it was written by a version that listed none."""

    step: int
    saved_at_ns: int = 0
    run: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, tuple[int, str]] | None = None


def read_marker(folder: str | Path) -> Marker | None:
    """Return the marker of a checkpoint, or None if there is no readable one."""
    try:
        return _marker(parse_json(read_file(Path(folder) / MARKER, ceilings.RUN_FILE_BYTES, "a marker")))
    except (VramwiseError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _marker(values: Any) -> Marker:
    listed = values.get("files") if isinstance(values, dict) else None
    files = (
        None if listed is None else {str(name): (int(one["bytes"]), str(one["sha256"])) for name, one in listed.items()}
    )
    return Marker(
        step=int(values["step"]),
        saved_at_ns=int(values.get("saved_at_ns", 0)),
        run=str(values.get("run", "")),
        settings={str(name): str(value) for name, value in dict(values.get("settings", {})).items()},
        files=files,
    )


def seal(folder: str | Path, *, step: int, run: str = "", settings: Mapping[str, str] | None = None) -> None:
    """Sync everything in the folder to disk, then write the marker that lists it.

    From then on the checkpoint counts.
    """
    path = Path(folder)
    names = _names(path)
    with ThreadPoolExecutor(_READERS) as pool:
        digests = list(pool.map(lambda name: _digest(path / name, sync=True), names))
    for inner in {(path / name).parent for name in names} | {path}:
        sync_folder(inner)
    listed = {name: {"bytes": size, "sha256": digest} for name, (size, digest) in zip(names, digests, strict=True)}
    values = {"format": _FORMAT, "step": step, "saved_at_ns": time.time_ns(), "run": run}
    text = json.dumps({**values, "settings": dict(settings or {}), "files": listed}, indent=1) + "\n"
    put_whole(path / MARKER, text.encode("utf-8"))
    sync_folder(path)


def _names(path: Path) -> list[str]:
    ours = (MARKER, f".{MARKER}")  # also leftovers of an interrupted write
    files = (one for one in path.rglob("*") if one.is_file() and not one.name.startswith(ours))
    return sorted(one.relative_to(path).as_posix() for one in files)


def _digest(path: Path, *, sync: bool = False) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
        if sync:
            os.fsync(file.fileno())
    return size, digest.hexdigest()


def faults(folder: str | Path, *, contents: bool = True) -> list[str]:
    """Return what differs from the marker, file by file; empty if nothing does.

    `contents=False` compares only names and sizes.
    """
    path = Path(folder)
    marker = read_marker(path)
    if marker is None:
        return [f"{MARKER} cannot be read" if (path / MARKER).exists() else "it was not finished"]
    if marker.files is None:
        return []
    listed = marker.files
    found = {name: _size_fault(path / name, size) for name, (size, _) in listed.items()}
    if contents:
        intact = [name for name, fault in found.items() if fault is None]
        with ThreadPoolExecutor(_READERS) as pool:
            compared = pool.map(lambda name: _content_fault(path / name, listed[name][1]), intact)
            found |= dict(zip(intact, compared, strict=True))
    return [f"{name} {fault}" for name, fault in found.items() if fault]


def _size_fault(path: Path, size: int) -> str | None:
    try:
        found = path.stat().st_size
    except OSError:
        return "is missing"
    return (
        None if found == size else f"has {found} of {size} bytes" if found < size else f"has {found} bytes, not {size}"
    )


def _content_fault(path: Path, digest: str) -> str | None:
    try:
        return None if _digest(path)[1] == digest else "is not what was saved"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def sentence(folder: str | Path, found: Sequence[str]) -> str:
    """Return `checkpoint-9 is not whole: optimizer.pt has 100 of 5371 bytes`."""
    shown = [*found[:3], *([f"{len(found) - 3} more"] if len(found) > 3 else [])]
    return f"{Path(folder).name} is not whole: {', '.join(shown)}"
