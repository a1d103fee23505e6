"""Parts of new Python scripts that all trainers share: values, comments, the data and the held-out split."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def script_text(head: Sequence[str], blocks: Sequence[Sequence[str]]) -> str:
    """Return the header as comments, then the blocks separated by blank lines."""
    first = [f"# {' '.join(line.splitlines())}".rstrip() for line in head]
    return "\n\n".join("\n".join(block) for block in (first, *blocks) if block) + "\n"


def literal(value: Any) -> str:
    """Return a value as Python, with the quotes that formatters prefer."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return f"[{', '.join(map(literal, value))}]" if isinstance(value, list) else repr(value)


def reason(comments: Mapping[str, str], key: str) -> str:
    """Return the comment after a value; "" if there is none."""
    return f"  # {comments[key]}" if comments.get(key) else ""


def loading(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that load the data, as the config names it."""
    if "datasets" not in values:
        yield f'dataset = load_dataset({literal(values["dataset_name"])}, split="train")'
        return
    block = values["datasets"][0]
    kind, files = literal(block["path"]), literal(block["data_files"])
    yield f'dataset = load_dataset({kind}, data_files={files}, split="train")'
    if "columns" in block:
        yield f"dataset = dataset.select_columns({literal(block['columns'])})"


def held_out(values: Mapping[str, Any]) -> str:
    """Return the line that splits the data."""
    if values.get("test_split_size"):
        return f"dataset = dataset.train_test_split(test_size={literal(values['test_split_size'])}, seed=42)"
    return 'dataset = {"train": dataset, "test": None}'
