"""Reads the datasets of a file: TRL's own keys, and the mixtures of projects built on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vramwise.trainers.base import DatasetBlock


def dataset_blocks(values: Mapping[str, Any]) -> Iterator[DatasetBlock]:
    """Yield `datasets`, which overrides `dataset_name`; else that, or a project's mixture."""
    columns = tuple(name for name in (values.get("dataset_text_field"),) if isinstance(name, str))
    listed = values.get("datasets")
    mixture = values.get("dataset_mixture")
    blocks = listed if isinstance(listed, list) else mixture.get("datasets") if isinstance(mixture, Mapping) else None
    if isinstance(blocks, list) and blocks:
        yield from (found for block in blocks if (found := _block(block, columns)) is not None)
        return
    name, mixer = values.get("dataset_name"), values.get("dataset_mixer")
    if isinstance(name, str):
        yield DatasetBlock(path=name, columns=columns)
    elif isinstance(mixer, Mapping):
        yield from (DatasetBlock(path=path, columns=columns) for path in mixer if isinstance(path, str))


def _block(block: Any, columns: tuple[str, ...]) -> DatasetBlock | None:
    path = block.get("path", block.get("id")) if isinstance(block, Mapping) else None
    if not isinstance(path, str):
        return None
    files = block.get("data_files")
    names = [files] if isinstance(files, str) else files if isinstance(files, list) else []
    named = block.get("columns")
    own = tuple(one for one in named if isinstance(one, str)) if isinstance(named, list) else ()
    return DatasetBlock(path=path, files=tuple(one for one in names if isinstance(one, str)), columns=own or columns)
