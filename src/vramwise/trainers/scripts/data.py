"""Finds the data that a script loads: the files of its only `load_dataset`, and the held-out share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vramwise.documents.python.evaluate import Evaluator
from vramwise.documents.python.results import Called, Result, Value, plain

# Readers of `datasets` that take files.
_READERS = frozenset({"json", "csv", "parquet", "text"})
_MOST_FILES = 100


def loaded_data(evaluator: Evaluator) -> dict[str, Any]:
    """Return `datasets` or `dataset_name`, and `test_split_size`, as TRL's command has them, if they are plain.

    What the script does with the rows is not followed. If it loads several datasets, none is used.
    """
    loads, splits = list(_called(evaluator, "load_dataset")), list(_called(evaluator, "train_test_split"))
    found = _loaded(evaluator, loads[0]) if len(loads) == 1 else {}
    share = _arguments(evaluator, splits[0])[1].get("test_size") if found and len(splits) == 1 else None
    return found | ({"test_split_size": share} if isinstance(share, float) else {})


def split_seed(evaluator: Evaluator) -> int | None:
    """Return the seed of the only `train_test_split`; None if it has none or there are several."""
    splits = list(_called(evaluator, "train_test_split"))
    seed = _arguments(evaluator, splits[0])[1].get("seed") if len(splits) == 1 else None
    return seed if isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0 else None


def _loaded(evaluator: Evaluator, call: Called) -> dict[str, Any]:
    positional, named = _arguments(evaluator, call)
    name = named.get("path", positional[0] if positional else None)
    files = named.get("data_files")
    if not isinstance(name, str):
        return {}
    if name not in _READERS:
        return {} if files is not None else {"dataset_name": name}
    listed = [files] if isinstance(files, str) else files if isinstance(files, list) else []
    if not listed or len(listed) > _MOST_FILES or not all(isinstance(one, str) for one in listed):
        return {}
    return {"datasets": [{"path": name, "data_files": list(listed)}]}


def _called(evaluator: Evaluator, name: str) -> Iterator[Called]:
    for call, site in evaluator.found.calls:
        full = evaluator.called(call, site)
        if full.rpartition(".")[2] == name and evaluator.holds(site) is not False:
            yield Called(name=name, node=call, site=site)


def _arguments(evaluator: Evaluator, called: Called) -> tuple[list[Any], Mapping[str, Any]]:
    positional, named, _ = evaluator.arguments(called)
    return [_known(one) for one in positional], {name: _known(one) for name, one in named.items()}


def _known(result: Result) -> Any:
    found = plain(result)
    return found.value if isinstance(found, Value) else None
