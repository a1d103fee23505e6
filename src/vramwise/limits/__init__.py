"""The budget for reading: how many bytes, values, rows and levels of an untrusted file are accepted.

Every reader of outside content uses this package (tests/test_architecture.py lists them): `read_file` for bytes,
`unzipped` for gzip, `parse_json` for JSON, `Budget` for data that is read row by row, and `child` for libraries that
decode in C and can only be stopped from outside. `meter` counts what the readers of scripts and shell build, before
they build it, and limits this process while they do. The limits are in `limits`, with the costs behind them.
"""

from vramwise.limits.json_values import json_memory_bytes, parse_json
from vramwise.limits.reading import Budget, read_file, unzipped

__all__ = ["Budget", "json_memory_bytes", "parse_json", "read_file", "unzipped"]
