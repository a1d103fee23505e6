"""Reads the datasets of a file: names in `dataset_info.json`, which refer to files or hub ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vramwise.trainers.base import DatasetBlock
from vramwise.trainers.llamafactory.resolve.adapter import names

_ENDINGS = (".json", ".jsonl", ".csv", ".parquet", ".txt", ".arrow")


def dataset_blocks(values: Mapping[str, Any]) -> Iterator[DatasetBlock]:
    """Yield every name under `dataset` and `eval_dataset`; a bare name means a JSON file in `dataset_dir`."""
    folder = values.get("dataset_dir", "data")
    folder = folder if isinstance(folder, str) else "data"
    for key in ("dataset", "eval_dataset"):
        for name in names(values.get(key)):
            if name:
                yield DatasetBlock(path=_path(name, folder), evaluation=key == "eval_dataset")


def _path(name: str, folder: str) -> str:
    return name if "/" in name or name.endswith(_ENDINGS) else f"{folder}/{name}.json"
