"""Reads `dataset_info.json` of LLaMA-Factory, which says what dataset names refer to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vramwise.budget import parse_json
from vramwise.errors import VramwiseError
from vramwise.files import read_config_bytes
from vramwise.trainers.llamafactory.resolve.adapter import names
from vramwise.training.embedded.arguments import Check
from vramwise.training.sources import source_problems
from vramwise.types import Config, RunSpec

INFO = "dataset_info.json"
_ONLINE = "ONLINE"
_ALPACA = {"prompt": "instruction", "query": "input", "response": "output", "messages": "conversations"}
_TAGS = {
    "role_tag": "from",
    "content_tag": "value",
    "user_tag": "human",
    "assistant_tag": "gpt",
    "system_tag": "system",
}
_HONOURED = frozenset(
    {"file_name", "hf_hub_url", "formatting", "columns", "tags", "subset", "split", "file_sha1", "ranking"}
)
_COLUMNS = frozenset({"prompt", "query", "response", "history", "messages", "system"})


def blocks_of(run: RunSpec, key: str) -> list[dict[str, Any]]:
    """Return each dataset under a key as a block for reading and encoding; raises KeyError for an unknown name."""
    table = _table(run.config)
    return [_block(name, {} if table is None else table[name], run.config) for name in names(run.config.get(key))]


def dataset_problems(run: RunSpec) -> Iterator[Check]:
    """Yield why the data of a file cannot be read."""
    if not names(run.config.get("dataset")):
        yield "dataset", True, "no dataset: nothing to train on"
    for key in ("dataset", "eval_dataset"):
        for name in names(run.config.get(key)):
            for message in _problems(name, run.config):
                yield key, True, f"dataset {name}: {message}"


def _problems(name: str, config: Config) -> Iterator[str]:
    folder = str(config.get("dataset_dir", "data"))
    if folder.startswith("REMOTE:"):
        yield f"dataset_dir {folder} is not looked up"
        return
    table = _table(config)
    if table is None and folder != _ONLINE:
        yield f"{folder}/{INFO} is not there, or no table of datasets"
        return
    entry = {} if table is None else table.get(name)
    if not isinstance(entry, Mapping):
        yield f"not in {folder}/{INFO}"
        return
    misshapen = [*_misshapen(entry)]
    if misshapen:
        yield f"{', '.join(misshapen)} of {INFO}: texts are expected there"
        return
    odd = [key for key, value in entry.items() if key not in _HONOURED and value is not None]
    columns = entry.get("columns") or {}
    odd += [f"columns.{key}" for key, value in columns.items() if key not in _COLUMNS and value is not None]
    if odd:
        yield f"{', '.join(map(str, odd))} of {INFO} is not honoured"
    if entry.get("formatting", "alpaca") not in ("alpaca", "sharegpt"):
        yield f"formatting {entry.get('formatting')} is neither alpaca nor sharegpt"
    if entry.get("ranking"):
        yield "it holds pairs, and only samples are trained on"
    for _, message in source_problems(_block(name, entry, config), Path(config.document.path).parent):
        yield message


def _misshapen(entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield keys that hold something other than text, or tables with other values."""
    for key in ("file_name", "hf_hub_url", "subset", "split"):
        if not isinstance(entry.get(key), str | None):
            yield key
    for key in ("columns", "tags"):
        table = entry.get(key)
        if table is not None and not (
            isinstance(table, Mapping) and all(isinstance(v, str | None) for v in table.values())
        ):
            yield key


def _block(name: str, entry: Mapping[str, Any], config: Config) -> dict[str, Any]:
    columns = entry.get("columns")
    # if any columns are named, the others do not exist
    found = dict(columns) if columns is not None else dict(_ALPACA)
    tags = entry.get("tags")
    block = {
        "formatting": entry.get("formatting", "alpaca"),
        "columns": found,
        "tags": dict(tags) if tags is not None else dict(_TAGS),
        "name": entry.get("subset"),
        "split": entry.get("split", "train"),
    }
    if "hf_hub_url" in entry or not entry:
        return {**block, "path": entry.get("hf_hub_url", name)}
    return {**block, "path": str(_folder(config) / str(entry.get("file_name", name)))}


def _folder(config: Config) -> Path:
    """Return `dataset_dir`, relative to the working folder, else to the config's."""
    name = str(config.get("dataset_dir", "data"))
    here, beside = Path(name), Path(config.document.path).parent / name
    try:
        return beside if not here.is_dir() and beside.is_dir() else here
    except (OSError, ValueError):  # not a folder name: too long, or with a NUL
        return here


def _table(config: Config) -> dict[str, Any] | None:
    path = _folder(config) / INFO
    try:
        # not a pipe: reading it could block for ever
        found = parse_json(read_config_bytes(str(path))) if path.is_file() else None
    except (OSError, ValueError, RecursionError, VramwiseError):
        return None
    return found if isinstance(found, dict) else None
