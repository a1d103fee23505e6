"""The datasets that a config names: where they lie, and in which columns their texts stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vramwise.trainers.base import DatasetBlock

# A block's own keys that name columns; `type` may be a mapping with more of them.
_COLUMNS = ("field", "field_messages", "field_chosen", "field_rejected", "field_prompt")


def dataset_blocks(values: Mapping[str, Any]) -> Iterator[DatasetBlock]:
    """Every entry of the lists that name data; what is no entry is left to the rules."""
    for key in ("datasets", "pretraining_dataset", "test_datasets"):
        written = values.get(key)
        for block in written if isinstance(written, list) else ():
            if isinstance(block, Mapping) and isinstance(block.get("path"), str):
                yield DatasetBlock(
                    path=block["path"],
                    files=tuple(_names(block.get("data_files"))),
                    kind=block["ds_type"] if isinstance(block.get("ds_type"), str) else None,
                    columns=tuple(_columns(block)),
                    evaluation=key == "test_datasets",
                )


def _names(written: Any) -> Iterator[str]:
    if isinstance(written, str):
        yield written
    elif isinstance(written, list):
        yield from (name for name in written if isinstance(name, str))


def _columns(block: Mapping[str, Any]) -> Iterator[str]:
    kind = block.get("type")
    said = [block.get(key) for key in _COLUMNS]
    if isinstance(kind, Mapping):
        said += [value for key, value in kind.items() if str(key).startswith("field")]
    yield from (name for name in said if isinstance(name, str) and name)
