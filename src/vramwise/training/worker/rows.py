"""Reads rows of a dataset: local json, jsonl, csv, parquet, arrow or text files, a folder of them, or a hub id.

Plain json, jsonl and csv are read without the `datasets` package; everything else goes through it, and only through the
readers that `sources.py` allows. Knows nothing about prompts and tokens.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.training.parent.extras import require
from vramwise.training.sources import BUILDERS, SUFFIXES, file_names, local_path, source_problems

Row = Mapping[str, Any]


def read_rows(block: Mapping[str, Any], base_dir: Path) -> list[Row]:
    """Return every row of one `datasets:` entry, in the order of its files.

    Paths are relative to the working folder or the config's. Raises VramwiseError for data that is not read.
    """
    for _, message in source_problems(block, base_dir):
        raise VramwiseError(message)
    name = str(block.get("path") or "")
    local = local_path(name, base_dir)
    files = _data_files(block, local, base_dir)
    if files:
        return [row for file in files for row in _read_file(file, block)]
    if local is not None and local.is_dir():
        # absolute, because `json` alone would be a reader's name
        return _through_datasets(str(local.absolute()), block)
    if local is not None or Path(name).suffix in SUFFIXES:
        raise VramwiseError(f"dataset {name} does not exist (looked in the working folder and beside the config)")
    return _through_datasets(name, block)


def _data_files(block: Mapping[str, Any], local: Path | None, base_dir: Path) -> list[Path]:
    written = block.get("data_files")
    if written:
        names = file_names(written)
        roots = [local] if local is not None and local.is_dir() else [Path(), base_dir]
        return _all_found(names, roots)
    if local is None:
        return []
    if local.is_file():
        return [local]
    if not local.is_dir():
        raise VramwiseError(f"dataset {local} is a device or a pipe: name a data file or a folder of them")
    return sorted(path for path in local.iterdir() if path.suffix in SUFFIXES)


def _all_found(names: list[str], roots: list[Path]) -> list[Path]:
    """Return each file in the first folder that has it; empty if one is missing (then they are on the hub)."""
    found = [next((root / name for root in roots if (root / name).is_file()), None) for name in names]
    return [path for path in found if path is not None] if None not in found else []


def _read_file(path: Path, block: Mapping[str, Any]) -> list[Row]:
    kind = str(block.get("ds_type") or SUFFIXES.get(path.suffix, ""))
    if not kind and block.get("path") in BUILDERS:
        kind = str(block["path"])
    if kind not in BUILDERS:
        raise VramwiseError(f"dataset {path}: ds_type must be one of {', '.join(BUILDERS)}")
    # a split may be a slice such as train[:10%]
    if kind not in ("json", "csv") or block.get("split") not in (None, "train"):
        return _through_datasets(kind, {"split": block.get("split"), "data_files": str(path)})
    try:
        if kind == "json":
            return _read_json(path)
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise VramwiseError(f"dataset {path} cannot be read: {error}") from error


def _read_json(path: Path) -> list[Row]:
    """Read one object per line, or one list of objects."""
    text = path.read_text(encoding="utf-8-sig")
    if text.lstrip().startswith("["):
        return [_object(row, path, number) for number, row in enumerate(_parse(text, path, 1), 1)]
    # only line feeds count: JSON strings may contain other separators (U+2028, U+0085)
    lines = ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())
    return [_object(_parse(line, path, number), path, number) for number, line in lines]


def _parse(text: str, path: Path, number: int) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise VramwiseError(f"dataset {path}:{number}: not JSON: {error}") from error


def _object(row: Any, path: Path, number: int) -> Row:
    if not isinstance(row, dict):
        raise VramwiseError(f"dataset {path}: row {number} is not a JSON object")
    return row


def _through_datasets(name: str, block: Mapping[str, Any]) -> list[Row]:
    require(("datasets",), f"loading dataset {name}")
    import datasets

    options = {key: block[key] for key in ("name", "revision", "data_files") if block.get(key)}
    if (
        "trust_remote_code" in signature(datasets.load_dataset_builder).parameters
    ):  # before version 4, a variable could allow it
        options["trust_remote_code"] = False
    try:
        refuse_reader(name, datasets.load_dataset_builder(name, **options))
        return list(datasets.load_dataset(name, split=str(block.get("split") or "train"), **options))
    except VramwiseError:
        raise
    except Exception as error:  # the package raises many kinds of errors: network, gated, missing split
        raise VramwiseError(f"dataset {name} cannot be loaded: {error}") from error


def refuse_reader(name: str, builder: Any) -> None:
    """Raise VramwiseError before anything is read if the package chose a reader other than ours."""
    package, _, chosen = type(builder).__module__.rpartition(".")
    allowed = {f"datasets.packaged_modules.{one}" for one in (*BUILDERS, "cache")}  # cache: read earlier, now offline
    if package not in allowed:
        raise VramwiseError(f"dataset {name} is not read: its format is {chosen}, not one of {', '.join(BUILDERS)}")
