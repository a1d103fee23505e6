"""Reads the datasets of a config, the columns of their texts, and the training schedule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vramwise.trainers.base import DatasetBlock
from vramwise.types import Schedule

# A block's own keys that name columns; `type` may be a mapping with more of them.
_COLUMNS = ("field", "field_messages", "field_chosen", "field_rejected", "field_prompt")


# Axolotl's default seed.
_SEED = 42


def dataset_blocks(values: Mapping[str, Any]) -> Iterator[DatasetBlock]:
    """Yield every valid entry of the lists that name data; the rules report invalid ones."""
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


def schedule(values: Mapping[str, Any]) -> Schedule:
    """Return the schedule: `max_steps` overrides `num_epochs`.

    With `test_datasets`, nothing of `datasets` is held out.
    """
    steps = _number(values.get("max_steps"))
    held_out = 0.0 if values.get("test_datasets") else _number(values.get("val_set_size"))
    seed = values.get("seed", _SEED)
    return Schedule(
        epochs=_number(values.get("num_epochs")) or 1.0,
        max_steps=int(steps) if steps >= 1 else None,
        held_out=held_out,
        # the data is shuffled when it is loaded; then the last samples are held out
        split_seed=seed if isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0 else None,
        held_out_last=True,
    )


def _number(written: Any) -> float:
    """Return a positive number, or 0 for anything that no run could have."""
    plain = isinstance(written, int | float) and not isinstance(written, bool)
    return float(written) if plain and 0 < written < 2**31 else 0.0


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
