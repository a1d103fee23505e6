"""Rows of a Parquet file, decoded by pyarrow in its own process: the sizes in a footer cannot be trusted."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vramwise.budget import Budget, json_memory_bytes, limits, parse_json
from vramwise.budget.child import child_lines
from vramwise.budget.json_values import OverBudget
from vramwise.errors import VramwiseError
from vramwise.units import mib

_INSTEAD = "save the rows as jsonl, or use --lengths with a file of lengths"


class NoPyarrow(VramwiseError):  # noqa: N818 (it reads as what is the matter)
    """The package is not installed; not cached, as it may be installed later."""


def parquet_rows(path: Path, budget: Budget) -> Iterator[dict[str, Any]]:
    """Yield rows until the budget or the decoding process's limits are spent.

    Raises VramwiseError if nothing can be decoded, NoPyarrow without pyarrow.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise NoPyarrow(f"reading {path} needs pyarrow: pip install pyarrow, or use --lengths with a file of lengths")
    bounds = (budget.size_bytes, budget.rows, budget.values_bytes)
    found, ended = 0, False
    for line in child_lines("vramwise.dataset.parquet_child", str(path.absolute()), *map(str, bounds)):
        needed = json_memory_bytes(line)
        if line.startswith(b"["):
            _end(path, parse_json(line), budget)
            ended = True
        elif budget.take(values_bytes=needed):
            found += 1
            try:
                yield parse_json(line, needed)
            except (ValueError, OverBudget):
                budget.left_out += 1
    if not ended and not budget.cut:
        budget.cut = True
        if not found:
            raise VramwiseError(
                f"{path}: decoding its first rows takes more than {mib(limits.CHILD_MEMORY_BYTES)} of "
                f"memory or {limits.CHILD_CPU_SECONDS} s: {_INSTEAD}"
            )


def _end(path: Path, said: list[Any], budget: Budget) -> None:
    """Process the last line: how much was decoded, whether the data was cut, and the error, if any."""
    size_bytes, cut, error = said
    budget.take(size_bytes=size_bytes)
    budget.cut = budget.cut or cut
    if error:
        raise VramwiseError(f"cannot read {path} as Parquet: {error}")
