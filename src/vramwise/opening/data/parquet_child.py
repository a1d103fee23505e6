"""The process that decodes a Parquet file: one row per line as JSON, then one line with the outcome.

Started by `parquet_rows` and limited by `budget.child`: whatever the file makes pyarrow do happens here.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from vramwise.limits.child import confine

# A batch consists of columns before it becomes rows: only this many rows, and a bounded number of values, become
# objects at once.
_ROWS_AT_ONCE = 256
_VALUE_BYTES = 48


def main(path: str, size_bytes: str, rows: str, values_bytes: str) -> None:
    """Write the rows of a file, limited by bytes, rows and memory of values."""
    import pyarrow

    confine(pyarrow.total_allocated_bytes)
    left = [int(size_bytes), int(rows), int(values_bytes)]
    decoded, cut, error = 0, False, ""
    try:
        for batch in _batches(path):
            decoded += batch.nbytes
            left[1] -= batch.num_rows
            left[2] -= _VALUE_BYTES * sum(map(_values, batch.columns))
            # Nested lists: one row may hold any number of values. The bytes of the first batch do not count.
            cut = left[2] < 0 or left[0] < decoded != batch.nbytes
            if cut:
                break
            for row in batch.to_pylist():
                _write(row)
            if left[1] < 0:
                break
    except MemoryError:
        return  # no last line, as when the process is killed
    except (OSError, ValueError, RuntimeError, NotImplementedError, RecursionError) as raised:
        error = " ".join(str(raised).split())[:200] or type(raised).__name__  # pyarrow's errors are these
    _write([decoded, cut, error])
    sys.stdout.buffer.flush()


def _write(value: Any) -> None:
    text = json.dumps(value, default=_nothing, ensure_ascii=False)
    sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass") + b"\n")


def _batches(path: str) -> Any:
    from pyarrow import parquet

    file = parquet.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False)
    return file.iter_batches(batch_size=_ROWS_AT_ONCE, use_threads=False)


def _values(column: Any) -> int:
    """Return how many values a column holds, at every level of its lists."""
    kind = column.type
    if hasattr(column, "dictionary"):
        return len(column)
    if hasattr(column, "flatten") and kind.num_fields:
        inner = column.flatten()
        return len(column) + sum(map(_values, inner if isinstance(inner, list) else [inner]))
    return len(column)


def _nothing(value: object) -> None:
    """Return None for anything that holds no tokens: image bytes, dates, decimals."""
    return
