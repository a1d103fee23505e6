"""Which datasets may be read: only formats that contain nothing but data, by name and by reader.

`datasets` has readers that unpickle (which can run code) and, before version 4, ran the Python script of a dataset. A
config is only a file, so neither is ever used, wherever the data is. Only names are checked here; `rows.py` also asks
the package which reader it chose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from vramwise.errors import ConfigError
from vramwise.types import Config

BUILDERS = ("json", "csv", "parquet", "arrow", "text")
SUFFIXES = {".json": "json", ".jsonl": "json", ".csv": "csv", ".parquet": "parquet"}
# Also data, but only if named: a folder may contain a README.txt.
_MORE_SUFFIXES = frozenset({".arrow", ".txt", ".ndjson", ".tsv"})
_CODE = frozenset({".py", ".pkl", ".pickle", ".pt", ".pth", ".bin"})
_COMPRESSED = frozenset({".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip"})
_URL = re.compile(r"://|::")
FORMATS = "json, jsonl, csv, parquet, arrow and txt files"


def local_path(name: str, base_dir: Path) -> Path | None:
    """Return a file or folder relative to the working folder, else to the config's; None if it does not exist."""
    try:
        return next((path for path in (Path(name), base_dir / name) if name and path.exists()), None)
    except (OSError, ValueError):  # too long, or with a NUL
        return None


def dataset_blocks(config: Config) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    """Yield every valid entry: the key of its list, its number, and the entry."""
    for name in ("datasets", "test_datasets", "pretraining_dataset"):
        written = config.get(name, ())
        for index, block in enumerate(written if isinstance(written, list) else ()):
            if isinstance(block, Mapping):
                yield name, index, block


def refuse_sources(config: Config) -> None:
    """Raise ConfigError for the first unreadable entry, for an engine that reads the data itself."""
    base_dir = Path(config.document.path).parent
    for name, index, block in dataset_blocks(config):
        for key, message in source_problems(block, base_dir):
            place = config.place(f"{name}.{index}.{key}")
            line, column = (place.line, place.column) if place else (None, None)
            raise ConfigError(message, line=line, column=column, path=config.document.path)


def source_problems(block: Mapping[str, Any], base_dir: Path) -> Iterator[tuple[str, str]]:
    """Yield each key of a `datasets:` entry that names something we do not read, and why."""
    kind = block.get("ds_type")
    if kind is not None and kind not in BUILDERS:
        yield "ds_type", f"ds_type {kind} is not read: one of {', '.join(BUILDERS)}"
    for name in file_names(block.get("data_files")):
        if not readable_name(name):
            yield "data_files", f"data_files {name} is not read: only {FORMATS}, nothing that could hold code"
    path = block.get("path")
    if path is not None and not isinstance(path, str):
        yield "path", "the path of a dataset must be a text"
    elif path:
        message = _path_problem(path, local_path(path, base_dir), typed=kind is not None)
        if message:
            yield "path", message


def _path_problem(path: str, local: Path | None, *, typed: bool) -> str | None:
    if local is not None:
        if local.is_file() and not typed and local.suffix not in SUFFIXES:
            return f"dataset {path} is not read: only {FORMATS}, nothing that could hold code (ds_type may name one)"
        return None
    if path in BUILDERS:
        return None
    if _URL.search(path):
        return f"dataset {path}: write an address as data_files, and its format ({', '.join(BUILDERS)}) as path"
    if PurePosixPath(path).suffix.lower() in _CODE:
        return f"dataset {path} is not read: only {FORMATS}, nothing that could hold code"
    if "/" not in path and PurePosixPath(path).suffix not in SUFFIXES:
        return (
            f"dataset {path} is neither here nor a format that is read ({', '.join(BUILDERS)}); a dataset of the hub "
            "is written owner/name"
        )
    return None


def file_names(written: Any) -> list[str]:
    """Return the names in `data_files`: one, a list, or a mapping of splits to either."""
    if not written:
        return []
    if isinstance(written, Mapping):
        return [name for part in written.values() for name in file_names(part)]
    if isinstance(written, (list, tuple)):
        return [name for part in written for name in file_names(part)]
    return [str(written)]


def readable_name(name: str) -> bool:
    """Return whether a name has the suffix of one of our formats, or none (then the reader decides)."""
    plain = name.partition("?")[0] if "://" in name else name
    suffixes = [suffix.lower() for suffix in PurePosixPath(plain.replace("\\", "/")).suffixes]
    while suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    last = suffixes[-1] if suffixes else ""
    if last in SUFFIXES or last in _MORE_SUFFIXES:
        return True
    return not re.fullmatch(r"\.[a-z][a-z0-9_]{0,11}", last)
