"""Lines of a new Python script that every trainer's scripts have: values, comments, the data and what is held out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def script_text(head: Sequence[str], blocks: Sequence[Sequence[str]]) -> str:
    """The head as comments, then the blocks with a blank line between them."""
    first = [f"# {' '.join(line.splitlines())}".rstrip() for line in head]
    return "\n\n".join("\n".join(block) for block in (first, *blocks) if block) + "\n"


def literal(value: Any) -> str:
    """A value as Python, with the quotes that formatters prefer."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return f"[{', '.join(map(literal, value))}]" if isinstance(value, list) else repr(value)


def reason(comments: Mapping[str, str], key: str) -> str:
    """The comment behind a value; "" where it speaks for itself."""
    return f"  # {comments[key]}" if comments.get(key) else ""


def loading(values: Mapping[str, Any]) -> Iterator[str]:
    """The data as the config names it."""
    if "datasets" not in values:
        yield f'dataset = load_dataset({literal(values["dataset_name"])}, split="train")'
        return
    block = values["datasets"][0]
    kind, files = literal(block["path"]), literal(block["data_files"])
    yield f'dataset = load_dataset({kind}, data_files={files}, split="train")'
    if "columns" in block:
        yield f"dataset = dataset.select_columns({literal(block['columns'])})"


def held_out(values: Mapping[str, Any]) -> str:
    """The line that splits the data."""
    if values.get("test_split_size"):
        return f"dataset = dataset.train_test_split(test_size={literal(values['test_split_size'])}, seed=42)"
    return 'dataset = {"train": dataset, "test": None}'
